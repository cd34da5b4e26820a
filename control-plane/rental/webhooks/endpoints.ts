// Commands of owners for webhook endpoints, and the secrets of endpoints. Each command works in the caller's transaction.
import type {
  ChangeWebhookEndpoint,
  CreateWebhookEndpoint,
  NewWebhookEndpoint,
  WebhookEndpoint,
} from '../../../shared/api/webhook.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { WEBHOOK_ENDPOINTS_PER_ORG_MAX } from '../../../shared/limits.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import { OutboundError } from '../../base/outbound/policy.ts';
import type { Outbound } from '../../base/outbound/outbound.ts';
import * as store from './endpoint-store.ts';
import { disabled, type Health, HEALTHY } from './schedule.ts';
import { beginReplay } from './deliveries.ts';
import { endpointView } from './view.ts';
import type { Sealing } from '../../base/http/sealing.ts';

/** How long the old secret still signs, beside the new one, after a rotation. */
const ROTATION_MS = 24 * 3_600_000;

export interface EndpointDeps {
  clock: Clock;
  ids: Ids;
  outbound: Outbound;
  secrets: Secrets;
  maxAttempts: number;
}

/** @throws ServiceError `validation_failed` for a URL with a blocked address, `conflict` if the organisation has too many endpoints */
export async function create(
  tx: Tx,
  orgId: string,
  request: CreateWebhookEndpoint,
  deps: EndpointDeps,
): Promise<NewWebhookEndpoint> {
  assertUrl(request.url, deps.outbound);
  if ((await store.countEndpoints(tx, orgId)) >= WEBHOOK_ENDPOINTS_PER_ORG_MAX) {
    fail('conflict', `An organisation may have ${WEBHOOK_ENDPOINTS_PER_ORG_MAX} webhook endpoints; delete one first.`);
  }
  const { clock, ids, secrets } = deps;
  const id = ids.prefixed('whe');
  const secret = secrets.make();
  const row: store.EndpointRow = {
    id,
    org_id: orgId,
    ...request,
    ...HEALTHY,
    secret_sealed: secrets.seal(id, secret),
    previous_secret_sealed: null,
    previous_until_ms: null,
    created_ms: clock.now(),
  };
  await store.insertEndpoint(tx, row);
  return { ...endpointView(row, clock.now()), secret };
}

/** @throws ServiceError `not_found` */
export async function ownEndpoint(query: Query, orgId: string, id: string): Promise<store.EndpointRow> {
  const row = await store.findEndpoint(query, id);
  return row?.org_id === orgId ? row : fail('not_found', `There is no webhook endpoint ${id}.`);
}

/** A new URL, or enabling the endpoint, resets its health. @throws ServiceError `not_found`, `validation_failed` */
export async function change(
  tx: Tx,
  row: store.EndpointRow,
  request: ChangeWebhookEndpoint,
  deps: EndpointDeps,
): Promise<WebhookEndpoint> {
  const nowMs = deps.clock.now();
  const { url = row.url, event_types = row.event_types, replay_since } = request;
  if (request.url !== undefined) assertUrl(url, deps.outbound);
  await store.updateEndpoint(tx, { ...row, url, event_types });
  const health = healthAfterChange(row, request);
  if (health !== undefined) await store.setHealth(tx, row, health);
  if (replay_since !== undefined) await beginReplay(tx, row.id, Date.parse(replay_since), deps);
  return endpointView(await ownEndpoint(tx, row.org_id, row.id), nowMs);
}

/** Undefined: the health does not change. */
function healthAfterChange(row: store.EndpointRow, { url, enabled }: ChangeWebhookEndpoint): Health | undefined {
  if (enabled === true) return HEALTHY;
  if (row.status === 'disabled') return undefined;
  if (enabled === false) return disabled(row, 'Disabled by its owner.');
  return url === undefined || url === row.url ? undefined : HEALTHY;
}

/** At most two secrets are valid. A second rotation within a day ends the oldest secret at once. */
export async function rotateSecret(tx: Tx, row: store.EndpointRow, deps: EndpointDeps): Promise<NewWebhookEndpoint> {
  const nowMs = deps.clock.now();
  const secret = deps.secrets.make();
  const rotated: store.EndpointRow = {
    ...row,
    secret_sealed: deps.secrets.seal(row.id, secret),
    previous_secret_sealed: row.secret_sealed,
    previous_until_ms: nowMs + ROTATION_MS,
  };
  await store.updateEndpoint(tx, rotated);
  return { ...endpointView(rotated, nowMs), secret };
}

const SECRET_BYTES = 32;

/** Secrets are made here, sealed in the database, and opened for each attempt. */
export interface Secrets {
  /** Makes a secret of 64 hexadecimal characters. */
  make(): string;
  seal(endpointId: string, secret: string): string;
  /** The secrets that sign now, newest first. There are two for a day after a rotation. */
  inUse(endpoint: store.EndpointRow, nowMs: number): string[];
}

export function openSecrets({ ids, sealing }: { ids: Ids; sealing: Sealing }): Secrets {
  const place = (endpointId: string): string => `webhook-secret/${endpointId}`;
  return {
    make: () => Buffer.from(ids.secret(SECRET_BYTES), 'base64url').toString('hex'),
    seal: (endpointId, secret) => sealing.seal(place(endpointId), secret),
    inUse: ({ id, secret_sealed, previous_secret_sealed, previous_until_ms }, nowMs) => {
      const previous = (previous_until_ms ?? 0) > nowMs ? previous_secret_sealed : null;
      const sealed = previous === null ? [secret_sealed] : [secret_sealed, previous];
      return sealed.map((text) => sealing.open(place(id), text));
    },
  };
}

function assertUrl(url: string, outbound: Outbound): void {
  try {
    outbound.assertAllowed(url);
  } catch (error) {
    if (error instanceof OutboundError) failField('url', error.message);
    throw error;
  }
}
