// One webhook endpoint: its status and settings, and its deliveries with their attempts.
import { useEffect, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { NewWebhookEndpoint, WebhookDelivery, WebhookEndpoint } from '../../../../shared/api/webhook.ts';
import { call, post } from '../core/api.ts';
import { serviceNow } from '../core/clock.ts';
import { useLiveList, useResource, whileVisible } from '../core/data.ts';
import { count, date, plural, relative, time } from '../core/format.ts';
import type { LiveList } from '../core/reading.ts';
import type { ScreenProps } from '../core/screen.ts';
import { may } from '../core/session.ts';
import { SameAs } from '../parts/command.tsx';
import { Dialog, Form, useAction } from '../parts/forms.tsx';
import { Badge, Card, Empty, Figures, Head, Note, Problem, type Tone } from '../parts/layout.tsx';
import { Segments } from '../parts/choosing.tsx';
import { LiveTable } from '../parts/table.tsx';
import { Delivery } from './webhook-delivery.tsx';
import { EndpointStatus, Secret } from './webhooks.tsx';

/** Period of reading again. Webhooks are not in the live stream. */
const REREAD_MS = 5_000;
const PAGE = 50;
/** How long deliveries are kept. */
const KEPT_MS = 30 * 24 * 3_600_000;

type Show = 'all' | 'failed' | 'waiting' | 'delivered';
const SHOWN: readonly (readonly [Show, string])[] = [
  ['all', 'All'],
  ['failed', 'Failed'],
  ['waiting', 'Waiting'],
  ['delivered', 'Delivered'],
];
const STATES: Record<WebhookDelivery['status'], { tone: Tone; text: string; show: Show }> = {
  pending: { tone: 'info', text: 'pending', show: 'waiting' },
  succeeded: { tone: 'ok', text: 'delivered', show: 'delivered' },
  retrying: { tone: 'info', text: 'retrying', show: 'waiting' },
  dead_lettered: { tone: 'bad', text: 'dead', show: 'failed' },
};

export function Webhook({ params: { id = '' } }: ScreenProps) {
  const path = `/v1/webhook-endpoints/${encodeURIComponent(id)}`;
  const endpoint = useResource<WebhookEndpoint>(path, { everyMs: REREAD_MS });
  const list = useLiveList<WebhookDelivery>({ path: `${path}/deliveries?limit=${PAGE}`, idOf: (row) => row.id });
  const [made, setMade] = useState<NewWebhookEndpoint>();
  const [chosen, setChosen] = useState<string>();
  useEffect(
    () =>
      whileVisible(REREAD_MS, () => {
        // A reload would shorten the list to its first page, so it happens only while the list has no further page.
        if ((list.rows.value?.length ?? 0) <= PAGE) void list.reload();
      }),
    [list],
  );
  const shown = chosen ?? list.rows.value?.[0]?.value.id;
  return (
    <>
      <Head
        title={endpoint.data.value?.url.replace('https://', '') ?? 'Webhook endpoint'}
        crumb={
          <>
            <Link href="/console/webhooks">Webhooks</Link> / <code>{id}</code>
          </>
        }
        same={{ cli: `svc webhook deliveries ${id}`, curl: { path: `${path}/deliveries` } }}
      />
      {endpoint.error.value !== undefined && (
        <Problem error={endpoint.error.value} retry={() => void endpoint.reload()} />
      )}
      {made !== undefined && <Secret endpoint={made} />}
      {endpoint.data.value !== undefined && (
        <Summary endpoint={endpoint.data.value} deliveries={(list.rows.value ?? []).map((row) => row.value)} />
      )}
      <div class="split even">
        {(endpoint.error.value === undefined || endpoint.data.value !== undefined) && (
          <Deliveries id={id} list={list} choose={setChosen} />
        )}
        {shown !== undefined && (
          <Delivery key={shown} path={path} id={id} deliveryId={shown} changed={() => void list.reload()} />
        )}
      </div>
      {may('webhooks: write') && endpoint.data.value !== undefined && (
        <Settings endpoint={endpoint.data.value} rotated={setMade} changed={() => void endpoint.reload()} />
      )}
    </>
  );
}

interface SummaryProps {
  endpoint: WebhookEndpoint;
  deliveries: readonly WebhookDelivery[];
}

function Summary({ endpoint, deliveries }: SummaryProps) {
  const of = (show: Show): number => deliveries.filter(({ status }) => STATES[status].show === show).length;
  const next = deliveries
    .flatMap(({ next_attempt_at: at }) => (at === null ? [] : [at]))
    .toSorted()
    .at(0);
  return (
    <Figures
      figures={[
        {
          label: 'Endpoint',
          value: <EndpointStatus endpoint={endpoint} />,
          small: plural(endpoint.event_types.length, 'event type'),
        },
        { label: 'Delivered', value: of('delivered'), small: `of the newest ${count(deliveries.length)}` },
        {
          label: 'Waiting',
          value: of('waiting'),
          small: next === undefined ? 'no attempt is planned' : `next ${relative(next)}`,
        },
        { label: 'Dead', value: of('failed'), small: 'can be retried for 30 days' },
      ]}
    />
  );
}

interface DeliveriesProps {
  id: string;
  list: LiveList<WebhookDelivery>;
  choose(deliveryId: string): void;
}

function Deliveries({ id, list, choose }: DeliveriesProps) {
  const [show, setShow] = useState<Show>('all');
  const path = `/v1/webhook-endpoints/${id}`;
  const since = new Date(serviceNow() - KEPT_MS).toISOString();
  const test = useAction(async () => {
    const { id: made } = await post<WebhookDelivery>(`${path}/test`, {});
    await list.reload();
    choose(made);
  });
  const replay = useAction(async () => {
    await call('PATCH', path, { replay_since: since });
    await list.reload();
  });
  return (
    <div class="stack tight">
      <div class="row far">
        <Segments label="Show" value={show} options={SHOWN} onValue={(next) => setShow(next)} />
        {may('webhooks: write') && (
          <span class="row">
            <button class="btn" type="button" disabled={test.isBusy} onClick={() => void test.run()}>
              {test.isBusy ? 'Sending…' : 'Send a test event'}
            </button>
            {mayHaveFailed(list) && (
              <button class="btn" type="button" disabled={replay.isBusy} onClick={() => void replay.run()}>
                {replay.isBusy ? 'Planning…' : 'Retry all failed'}
              </button>
            )}
          </span>
        )}
      </div>
      {test.error !== undefined && <Problem error={test.error} />}
      {replay.error !== undefined && <Problem error={replay.error} />}
      <LiveTable
        caption="Deliveries"
        list={list}
        only={({ status }) => show === 'all' || STATES[status].show === show}
        columns={[
          {
            title: 'Event',
            cell: (row) => (
              <>
                <button class="btn sm" type="button" onClick={() => choose(row.id)}>
                  {row.event_type}
                  {row.is_test ? ', test' : ''}
                </button>
                <br />
                <small class="quiet">
                  <code>{row.event_id}</code>
                </small>
              </>
            ),
          },
          { title: 'Result', cell: (row) => <Result delivery={row} /> },
          { title: 'Sent (UTC)', class: 'num w', cell: ({ created_at: at }) => <time dateTime={at}>{time(at)}</time> },
        ]}
        empty={
          <Empty title={show === 'all' ? 'Nothing was sent yet' : 'No such delivery'} cli={`svc webhook test ${id}`}>
            Every event that is sent to the endpoint is listed here for 30 days. A test event is sent as any other.
          </Empty>
        }
      />
      <SameAs
        cli={`svc webhook replay ${id} --since ${since.slice(0, 10)}T00:00:00Z`}
        curl={{ method: 'PATCH', path, body: { replay_since: `${since.slice(0, 10)}T00:00:00Z` } }}
      />
    </div>
  );
}

/** A later page may have one that failed. */
function mayHaveFailed({ rows, next }: LiveList<WebhookDelivery>): boolean {
  return next.value !== null || (rows.value ?? []).some(({ value }) => STATES[value.status].show === 'failed');
}

function Result({ delivery }: { delivery: WebhookDelivery }) {
  const { status, attempts, max_attempts: max, next_attempt_at: next, attempt_history: history } = delivery;
  const { tone, text } = STATES[status];
  const last = history.at(-1);
  const answer = last === undefined ? '' : String(last.response_status ?? last.error_code ?? '');
  return (
    <>
      <Badge tone={tone}>{text}</Badge>
      <small>
        {status === 'succeeded' && last !== undefined && `${answer} in ${last.duration_ms} ms, attempt ${last.n}`}
        {status === 'dead_lettered' && `${answer}, ${attempts} of ${max} failed`}
        {status === 'retrying' && `${answer}, attempt ${attempts} of ${max}`}
        {next !== null && status !== 'succeeded' && `, next ${relative(next)}`}
      </small>
    </>
  );
}

interface SettingsProps {
  endpoint: WebhookEndpoint;
  rotated(endpoint: NewWebhookEndpoint): void;
  changed(): void;
}

function Settings({ endpoint, rotated, changed }: SettingsProps) {
  const { id, enabled, previous_secret_until: until } = endpoint;
  const path = `/v1/webhook-endpoints/${id}`;
  const [isDeleting, setDeleting] = useState(false);
  const turn = useAction(async () => {
    await call('PATCH', path, { enabled: !enabled });
    changed();
  });
  const rotate = useAction(async () => {
    rotated(await post<NewWebhookEndpoint>(`${path}/rotate-secret`));
    changed();
  });
  return (
    <Card title="Settings">
      <div class="pad stack">
        <p class="small dim">
          Receives {endpoint.event_types.join(', ')}.
          {until !== undefined && ` Deliveries carry a second signature by the secret before, until ${date(until)}.`}
        </p>
        <div class="row">
          <button class="btn" type="button" disabled={turn.isBusy} onClick={() => void turn.run()}>
            {enabled ? 'Disable' : 'Enable'}
          </button>
          <button class="btn" type="button" disabled={rotate.isBusy} onClick={() => void rotate.run()}>
            Make a new secret
          </button>
          <button class="btn kill" type="button" onClick={() => setDeleting(true)}>
            Delete
          </button>
        </div>
        {turn.error !== undefined && <Problem error={turn.error} />}
        {rotate.error !== undefined && <Problem error={rotate.error} />}
        <SameAs cli={`svc webhook rotate ${id}`} curl={{ method: 'POST', path: `${path}/rotate-secret` }} />
      </div>
      {isDeleting && <Delete endpoint={endpoint} close={() => setDeleting(false)} />}
    </Card>
  );
}

function Delete({ endpoint: { id, url }, close }: { endpoint: WebhookEndpoint; close(): void }) {
  const path = `/v1/webhook-endpoints/${id}`;
  const action = useAction(async ({ goTo }) => {
    await call('DELETE', path);
    goTo('/console/webhooks');
  });
  return (
    <Dialog title="Delete the endpoint?" close={close}>
      <Form action={action} submit="Delete the endpoint" busy="Deleting…" tone="kill" cancel={close}>
        <Note tone="warn">
          Nothing more is sent to <span class="brk">{url}</span>, and the history of its deliveries is removed.
        </Note>
      </Form>
      <SameAs cli={`svc webhook delete ${id}`} curl={{ method: 'DELETE', path }} />
    </Dialog>
  );
}
