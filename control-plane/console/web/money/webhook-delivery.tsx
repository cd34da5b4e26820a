// One delivery: its attempts with request and answer, the time of the next attempt, and a button for a retry.
import type { WebhookDeliveryDetail } from '../../../../shared/api/webhook.ts';
import { post } from '../core/api.ts';
import { useResource } from '../core/data.ts';
import { relative, time } from '../core/format.ts';
import { may } from '../core/session.ts';
import { SameAs } from '../parts/command.tsx';
import { useAction } from '../parts/forms.tsx';
import { Card, Problem } from '../parts/layout.tsx';
import { SignatureCheck } from './signature-check.tsx';

const REREAD_MS = 5_000;

type Attempt = WebhookDeliveryDetail['attempt_history'][number];

const ERRORS: Record<NonNullable<Attempt['error_code']>, string> = {
  timeout: 'no answer in time',
  dns: 'the name has no address',
  connect: 'no connection',
  tls: 'TLS failed',
  protocol: 'the answer is not HTTP',
  blocked_address: 'the address is not allowed',
  http_status: 'not a 2xx status',
};

interface DeliveryProps {
  /** The API path of the endpoint. */
  path: string;
  id: string;
  deliveryId: string;
  /** Called after the person has requested another attempt. */
  changed(): void;
}

export function Delivery({ path, id, deliveryId, changed }: DeliveryProps) {
  const below = `${path}/deliveries/${encodeURIComponent(deliveryId)}`;
  const { data, error, reload } = useResource<WebhookDeliveryDetail>(below, { everyMs: REREAD_MS });
  const retry = useAction(async () => {
    await post(`${below}/retry`);
    await reload();
    changed();
  });
  const delivery = data.value;
  if (delivery === undefined) {
    if (error.value === undefined) return <div class="card pad quiet">Reading…</div>;
    return <Problem error={error.value} retry={() => void reload()} />;
  }
  return (
    <Card
      title={delivery.event_type}
      note={<code>{delivery.event_id}</code>}
      actions={
        may('webhooks: write') && (
          <button class="btn sm pri" type="button" disabled={retry.isBusy} onClick={() => void retry.run()}>
            {retry.isBusy ? 'Asking…' : 'Retry now'}
          </button>
        )
      }
      footer={
        <div class="stack tight">
          <details>
            <summary>The body, as it is sent</summary>
            <pre tabIndex={0}>{delivery.body}</pre>
          </details>
          <details>
            <summary>Check a signature</summary>
            <SignatureCheck sent={delivery.body} />
          </details>
          <SameAs cli={`svc webhook retry ${id} ${deliveryId}`} curl={{ method: 'POST', path: `${below}/retry` }} />
        </div>
      }
    >
      {retry.error !== undefined && <Problem error={retry.error} />}
      <ol class="steps pad">
        <Next delivery={delivery} />
        {delivery.attempt_history.toReversed().map((attempt) => (
          <AttemptStep key={attempt.n} attempt={attempt} />
        ))}
      </ol>
    </Card>
  );
}

function Next({ delivery }: { delivery: WebhookDeliveryDetail }) {
  const { status, attempts, max_attempts: max, next_attempt_at: next } = delivery;
  if (next !== null)
    return (
      <li class="todo">
        <b>
          Attempt {attempts + 1} of {max}
        </b>
        <span class="at">{relative(next)}</span>
      </li>
    );
  if (status !== 'dead_lettered') return null;
  return (
    <li class="todo">
      <b>No further attempt is planned</b>
      <span class="small">It was given up. A retry sends the same event id and body.</span>
    </li>
  );
}

function AttemptStep({ attempt }: { attempt: Attempt }) {
  const { n, trigger, started_at: at, duration_ms: ms, response_status: status, error_code: code } = attempt;
  const result = status === null ? (code === null ? 'under way' : ERRORS[code]) : String(status);
  return (
    <li class={code === null ? 'done' : 'bad'}>
      <b>
        Attempt {n}: {result}
      </b>
      <time class="at" dateTime={at}>
        {time(at)}
      </time>
      <span class="small quiet">
        {ms} ms{trigger === 'schedule' ? '' : `, ${trigger}`}
        {attempt.remote_ip !== null && `, ${attempt.remote_ip}`}
      </span>
      {attempt.error_detail !== null && <span class="small brk">{attempt.error_detail}</span>}
      {attempt.response_body_excerpt !== null && attempt.response_body_excerpt !== '' && (
        <details class="wide">
          <summary>Your answer{attempt.truncated ? ', its beginning' : ''}</summary>
          <pre tabIndex={0}>{attempt.response_body_excerpt}</pre>
        </details>
      )}
      {attempt.request_headers !== null && (
        <details class="wide">
          <summary>What was sent</summary>
          <pre tabIndex={0}>
            {`POST ${attempt.request_url ?? ''}\n${Object.entries(attempt.request_headers)
              .map(([name, value]) => `${name}: ${value}`)
              .join('\n')}`}
          </pre>
        </details>
      )}
    </li>
  );
}
