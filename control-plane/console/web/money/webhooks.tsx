// The endpoints to which events are sent, and a new one. A secret is shown once.
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { NewWebhookEndpoint, WebhookEndpoint, WebhookEventType } from '../../../../shared/api/webhook.ts';
import { post } from '../core/api.ts';
import { useLiveList } from '../core/data.ts';
import { date, quoted } from '../core/format.ts';
import { may } from '../core/session.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Badge, Card, Empty, Head } from '../parts/layout.tsx';
import { ShownOnce } from '../parts/shown-once.tsx';
import { type Column, LiveTable } from '../parts/table.tsx';

const TYPES: readonly (readonly [WebhookEventType, string])[] = [
  ['instance.creating', 'a launch was accepted'],
  ['instance.running', 'SSH works, charging begins'],
  ['instance.terminated', 'it was ended'],
  ['instance.failed', 'it could not be provided, or broke'],
];

const COLUMNS: readonly Column<WebhookEndpoint>[] = [
  {
    title: 'Endpoint',
    cell: ({ id, url }) => (
      <>
        <Link class="brk" href={`/console/webhooks/${id}`}>
          {url}
        </Link>
        <br />
        <small class="quiet">
          <code>{id}</code>
        </small>
      </>
    ),
  },
  { title: 'Status', cell: (endpoint) => <EndpointStatus endpoint={endpoint} /> },
  { title: 'Events', class: 'w', cell: ({ event_types: types }) => types.join(', ') },
  { title: 'Since', class: 'w', cell: ({ created_at: at }) => date(at) },
];

export function Webhooks() {
  const [made, setMade] = useState<NewWebhookEndpoint>();
  const list = useLiveList<WebhookEndpoint>({ path: '/v1/webhook-endpoints?limit=50', idOf: ({ id }) => id });
  const done = (endpoint: NewWebhookEndpoint): void => {
    setMade(endpoint);
    void list.reload();
  };
  return (
    <>
      <Head title="Webhooks" same={{ cli: 'svc webhook list', curl: { path: '/v1/webhook-endpoints?limit=50' } }} />
      {made !== undefined && <Secret endpoint={made} />}
      <LiveTable
        caption="Webhook endpoints"
        list={list}
        columns={COLUMNS}
        empty={
          <Empty title="No endpoint yet" cli="svc webhook listen --forward http://localhost:3000/hook">
            An endpoint is an address of yours to which events of instances are posted, signed with its secret.
          </Empty>
        }
      />
      {may('webhooks: write') && <NewEndpoint done={done} />}
    </>
  );
}

/** Shown after a creation and after a rotation. */
export function Secret({ endpoint: { url, secret } }: { endpoint: NewWebhookEndpoint }) {
  return (
    <ShownOnce
      title={`The secret of ${url}`}
      secret={secret}
      what="the secret"
      note="The signatures are computed with these 64 characters as they stand."
    />
  );
}

export function EndpointStatus({ endpoint: { status, status_reason: reason } }: { endpoint: WebhookEndpoint }) {
  const tone = status === 'healthy' ? 'ok' : status === 'degraded' ? 'warn' : '';
  return (
    <>
      <Badge tone={tone}>{status}</Badge>
      {reason !== undefined && <small>{reason}</small>}
    </>
  );
}

const ALL_TYPES: readonly WebhookEventType[] = TYPES.map(([type]) => type);

function NewEndpoint({ done }: { done(endpoint: NewWebhookEndpoint): void }) {
  const [url, setUrl] = useTyped('webhook/url', '');
  const [chosen, setChosen] = useTyped('webhook/events', ALL_TYPES);
  const body = { url, event_types: chosen };
  const isComplete = url.startsWith('https://') && chosen.length > 0;
  const action = useAction(async () => {
    done(await post<NewWebhookEndpoint>('/v1/webhook-endpoints', body));
    setUrl('');
  });
  const toggle = (type: WebhookEventType): void => {
    setChosen(ALL_TYPES.filter((each) => chosen.includes(each) !== (each === type)));
  };
  return (
    <Card title="New endpoint">
      <div class="pad stack">
        <Form action={action} submit="Add the endpoint" busy="Adding…" isDisabled={!isComplete}>
          <Field
            label="URL"
            type="url"
            required
            placeholder="https://hooks.example.com/gpu"
            value={url}
            onValue={setUrl}
            rule={action.ruleOf('url')}
            hint="https, a public address, port 443 or 8443 unless the operator allows more"
          />
          <fieldset>
            <legend>Events</legend>
            <div class="grid">
              {TYPES.map(([type, text]) => (
                <label key={type} class="check">
                  <input type="checkbox" checked={chosen.includes(type)} onChange={() => toggle(type)} />
                  <span>
                    {type} <small class="quiet">{text}</small>
                  </span>
                </label>
              ))}
            </div>
          </fieldset>
        </Form>
        {isComplete && (
          <SameAs
            isLong
            cli={`svc webhook create --url ${quoted(url)} --events ${chosen.join(',')}`}
            curl={{ method: 'POST', path: '/v1/webhook-endpoints', body }}
          />
        )}
      </div>
    </Card>
  );
}
