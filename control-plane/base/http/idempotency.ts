// Idempotency-Key: a repeated request gets the stored reply, byte for byte, and has no second effect.
//
// A claim row is committed before the work begins. It is a hot body, so that requests at the same moment share a transaction for their claims.
// The transaction of the effect completes the claim if it still holds it, and rolls back otherwise. So the effect and its stored reply exist
// together or not at all, wherever the process dies.
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { ERRORS, fail, ServiceError } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { IDEMPOTENCY_KEEP_MS, IDEMPOTENCY_KEYS_PER_API_KEY_MAX, IDEMPOTENCY_WAIT_MS } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import { flag, int, json, text } from '../db/columns.ts';
import { type Db, type HotBody, type NowTx, type Sql, type Tx, sql } from '../db/db.ts';
import { inPieces, type Piece } from '../db/pieces.ts';
import { type Reply, toWire, type WireReply } from './route.ts';
import type { Sealing } from './sealing.ts';

/**
 * Longer than the slowest handler (image checks at a registry). If a claim is older, another request may take it over. The new token then
 * stops the old request.
 */
const LEASE_MS = 120_000;
const POLL_MS = 40;
const HOUR_MS = 3_600_000;
/** Longer than every path with ids of ours. PostgreSQL indexes at most 2,700 bytes of a row, and the key may take 510 of them. */
const PATH_CHARS_KEPT = 512;
const STORED_HEADERS = new Set(['content-type', 'location', 'operation-id', 'x-should-retry']);
/** Refusals that depend on the state of the service, so a repeated request must get the same answer. Other refusals free the key. */
const STORED_REFUSALS = new Set([402, 404, 409, 410, 422]);

export interface KeyedRequest {
  principalId: string;
  method: string;
  /** The path without the query. */
  path: string;
  key: string;
  query: unknown;
  /** Parsed from JSON, but not yet by the schema. */
  body: unknown;
  /** Set if the reply holds a secret. The stored reply is then sealed. */
  sealing?: Sealing | undefined;
}

export interface Work {
  handle(settle: (tx: Tx, reply: Reply) => Promise<void>): Promise<Reply>;
  /** The response for a refusal, so that it can be stored. */
  refusal(error: ServiceError): WireReply;
}

export interface Idempotency {
  /** @throws ServiceError `idempotency_key_reused`, `idempotency_key_in_use`, and the errors of the work */
  run(request: KeyedRequest, work: Work): Promise<WireReply>;
  /** Deletes keys older than the promised 24 hours. Returns the number of deleted rows. */
  purge(signal: AbortSignal): Promise<number>;
}

interface Deps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  /** Grows with every start of the control plane. Claims with a lower epoch belong to a process that has died. */
  epoch(): number;
}

interface Held {
  request: KeyedRequest;
  token: string;
}

type ClaimResult = { kind: 'claimed'; token: string } | { kind: 'stored'; reply: WireReply } | { kind: 'in_flight' };

export function openIdempotency(deps: Deps): Idempotency {
  const { db, clock, log } = deps;
  return {
    run: async (asked, work) => {
      const request = { ...asked, path: keptPath(asked.path) };
      const attempt = await claimOrWait(deps, request);
      if (attempt.kind === 'stored') return replayed(readable(attempt.reply, request));
      const held: Held = { request, token: attempt.token };
      return perform(deps, held, work).catch(async (error: unknown) => {
        // Frees the key for the next try. If even this fails, the lease frees it later.
        await release(db, held).catch((cause: unknown) => log.error({ err: cause }, 'a claim could not be released'));
        throw error;
      });
    },
    purge: async (signal) => {
      const nowMs = clock.now();
      await db.tx('idempotency.purge_counts', (tx) =>
        tx.run(sql`delete from idempotency_counts where hour_ms <= ${nowMs - IDEMPOTENCY_KEEP_MS}`),
      );
      return inPieces(nowMs - IDEMPOTENCY_KEEP_MS, (piece) => forgetKeys(db, nowMs, piece), signal);
    },
  };
}

/** The path, or its hash in place of a long one. A path begins with a slash, so no other path equals a hash. */
function keptPath(path: string): string {
  return path.length <= PATH_CHARS_KEPT ? path : createHash('sha256').update(path).digest('hex');
}

/** Keeps keys that a request in progress has claimed. */
function forgetKeys(db: Db, nowMs: number, { untilMs, limit }: Piece): Promise<number> {
  const key = sql`api_key_id, method, path, idempotency_key`;
  return db.tx('idempotency.purge', (tx) =>
    tx.run(
      sql`delete from idempotency_keys where (${key}) in (
            select ${key} from idempotency_keys
            where created_ms <= ${untilMs} and (status is not null or lease_until_ms <= ${nowMs})
            order by created_ms limit ${limit})`,
    ),
  );
}

async function perform({ db }: Deps, held: Held, work: Work): Promise<WireReply> {
  let settled: WireReply | undefined;
  const outcome = await work
    .handle(async (tx, reply) => {
      settled = toWire(reply);
      await finish(tx, held, storable(settled, held.request));
    })
    .catch((error: unknown) => {
      if (!(error instanceof ServiceError) || !isStored(error)) throw error;
      settled = undefined;
      return work.refusal(error);
    });
  if (settled !== undefined) return settled;
  const reply = toWire(outcome);
  await db.tx('idempotency.finish', (tx) => finish(tx, held, storable(reply, held.request)));
  return reply;
}

function isStored(error: ServiceError): boolean {
  if (error.code === 'validation_failed' || error.code.startsWith('idempotency_key_')) return false;
  return STORED_REFUSALS.has(ERRORS[error.code].status);
}

async function claimOrWait(deps: Deps, request: KeyedRequest): Promise<Exclude<ClaimResult, { kind: 'in_flight' }>> {
  const { db, clock, ids } = deps;
  const deadlineMs = clock.monotonicMs() + IDEMPOTENCY_WAIT_MS;
  const fingerprint = fingerprintOf(request);
  for (;;) {
    const claim: Claim = { request, fingerprint, token: ids.secret(16), epoch: deps.epoch(), now: clock.now() };
    const attempt = resultOf(await db.hot(claimBody(claim)), claim);
    if (attempt.kind !== 'in_flight') return attempt;
    if (clock.monotonicMs() >= deadlineMs) {
      fail('idempotency_key_in_use', {
        detail: 'A request with this Idempotency-Key is still being worked on. Send it again to get its answer.',
        retryAfterSeconds: 1,
      });
    }
    await clock.sleep(POLL_MS);
  }
}

interface Claim {
  request: KeyedRequest;
  fingerprint: string;
  token: string;
  epoch: number;
  now: number;
}

/** The row that was stored under the key before; all fields are null if there was none. */
const StoredRow = z.object({
  fingerprint: text.nullable(),
  /** True: this row no longer protects its key, so another request may take it over. */
  is_free: flag.nullable(),
  status: int.nullable(),
  headers: json(z.record(z.string(), z.string())).nullable(),
  body: text.nullable(),
});
const NOTHING_STORED = { fingerprint: null, is_free: null, status: null, headers: null, body: null };
/** Number of keys that the API key has used in the last 24 hours, without the present one. */
const UsedRow = z.object({ used: int });
const ClaimRow = z.object({ ...StoredRow.shape, ...UsedRow.shape, claimed: flag });
type ClaimRow = z.infer<typeof ClaimRow>;

/** Puts a key behind all accounts in the order of a packet (`HotBody.locks`), because a request changes its wallet first and settles its key last. */
const AFTER_ACCOUNTS = '~';

/**
 * Inserts the claim, or takes a row over that is free, unless the API key has used too many keys. Equal requests lock the same row first, so
 * that packets of two control planes never wait for each other in a circle.
 */
function claimBody(claim: Claim): HotBody<ClaimRow> {
  const { principalId, method, path, key } = claim.request;
  return {
    name: 'idempotency.claim',
    locks: [AFTER_ACCOUNTS, principalId, method, path, key].join(' '),
    statement: () => claimStatement(claim),
    row: ClaimRow,
    runNow: (tx) => claimInSteps(tx, claim),
    // The claim may be lost: a crash also ends its request, and frees the claim in any case. A stored reply must be durable before it is
    // sent again.
    mayBeLost: ({ claimed }) => claimed,
  };
}

/** A row that is not free does not come to the conflict, which would lock it. So a request that waits for the answer of another locks nothing. */
function claimStatement({ request, fingerprint, token, epoch, now }: Claim): Sql {
  const { principalId, method, path, key } = request;
  return sql`with used as materialized (
      select cast(coalesce(sum(count), 0) as bigint) as used from idempotency_counts
      where api_key_id = ${principalId} and hour_ms > ${now - IDEMPOTENCY_KEEP_MS}),
    before as materialized (${stored({ request, epoch, now })}),
    claimed as (
      insert into idempotency_keys
        (api_key_id, method, path, idempotency_key, fingerprint, claim_token, epoch, lease_until_ms, created_ms)
      select ${principalId}, ${method}, ${path}, ${key}, ${fingerprint}, ${token}, cast(${epoch} as bigint),
        cast(${now + LEASE_MS} as bigint), cast(${now} as bigint)
      from used left join before on 1 = 1
      where used < ${IDEMPOTENCY_KEYS_PER_API_KEY_MAX} and (before.fingerprint is null or before.is_free = 1)
      on conflict (api_key_id, method, path, idempotency_key) do update set
        fingerprint = excluded.fingerprint, claim_token = excluded.claim_token, epoch = excluded.epoch,
        lease_until_ms = excluded.lease_until_ms, created_ms = excluded.created_ms, status = null, headers = null, body = null
      where ${isFree({ epoch, now })}
      returning 1),
    counted as (
      insert into idempotency_counts (api_key_id, hour_ms, count)
      select ${principalId}, cast(${hourOf(now)} as bigint), 1 from claimed
      on conflict (api_key_id, hour_ms) do update set count = idempotency_counts.count + 1)
    select (select count(*) from claimed) as claimed, used.used, before.*
    from used left join before on 1 = 1`;
}

/** Does the same as `claimStatement` on SQLite, in several statements. */
function claimInSteps(tx: NowTx, claim: Claim): ClaimRow {
  const { request, epoch, now } = claim;
  const { principalId, method, path, key } = request;
  const counted = tx.one(
    UsedRow,
    sql`select cast(coalesce(sum(count), 0) as bigint) as used from idempotency_counts
        where api_key_id = ${principalId} and hour_ms > ${now - IDEMPOTENCY_KEEP_MS}`,
  );
  const used = counted?.used ?? 0;
  const claimed =
    used >= IDEMPOTENCY_KEYS_PER_API_KEY_MAX
      ? 0
      : tx.run(
          sql`insert into idempotency_keys
                (api_key_id, method, path, idempotency_key, fingerprint, claim_token, epoch, lease_until_ms, created_ms)
              values (${principalId}, ${method}, ${path}, ${key}, ${claim.fingerprint}, ${claim.token}, ${epoch}, ${now + LEASE_MS}, ${now})
              on conflict (api_key_id, method, path, idempotency_key) do update set
                fingerprint = excluded.fingerprint, claim_token = excluded.claim_token, epoch = excluded.epoch,
                lease_until_ms = excluded.lease_until_ms, created_ms = excluded.created_ms, status = null, headers = null, body = null
              where (idempotency_keys.status is null
                     and (idempotency_keys.epoch < excluded.epoch or idempotency_keys.lease_until_ms <= excluded.created_ms))
                 or (idempotency_keys.status is not null and idempotency_keys.created_ms <= ${now - IDEMPOTENCY_KEEP_MS})`,
        );
  if (claimed === 0) {
    const before = tx.one(StoredRow, stored({ request, epoch, now }));
    return { ...NOTHING_STORED, ...before, claimed: false, used };
  }
  tx.run(
    sql`insert into idempotency_counts (api_key_id, hour_ms, count) values (${principalId}, ${hourOf(now)}, 1)
        on conflict (api_key_id, hour_ms) do update set count = idempotency_counts.count + 1`,
  );
  return { ...NOTHING_STORED, claimed: true, used };
}

function stored({ request, ...since }: Pick<Claim, 'request' | 'epoch' | 'now'>): Sql {
  return sql`select fingerprint, case when ${isFree(since)} then 1 else 0 end as is_free, status, headers, body
    from idempotency_keys where ${keyOf(request)}`;
}

/**
 * Selects rows that another request may take over: claims whose process has died or took too long, and replies older than the promised
 * time.
 */
function isFree({ epoch, now }: Pick<Claim, 'epoch' | 'now'>): Sql {
  return sql`(idempotency_keys.status is null and (idempotency_keys.epoch < ${epoch} or idempotency_keys.lease_until_ms <= ${now}))
    or (idempotency_keys.status is not null and idempotency_keys.created_ms <= ${now - IDEMPOTENCY_KEEP_MS})`;
}

function hourOf(nowMs: number): number {
  return Math.floor(nowMs / HOUR_MS) * HOUR_MS;
}

/** @throws ServiceError `rate_limit_exceeded`, `idempotency_key_reused` */
function resultOf(row: ClaimRow, { fingerprint, token }: Claim): ClaimResult {
  if (row.claimed) return { kind: 'claimed', token };
  const isNew = row.fingerprint === null || row.is_free === true;
  if (isNew && row.used >= IDEMPOTENCY_KEYS_PER_API_KEY_MAX) {
    fail('rate_limit_exceeded', {
      detail: `This API key has used ${IDEMPOTENCY_KEYS_PER_API_KEY_MAX} Idempotency-Keys in 24 hours, and each is kept for a day. Send fewer requests that change something, or use another API key.`,
      retryAfterSeconds: HOUR_MS / 1000,
    });
  }
  // On PostgreSQL, an equal request may have inserted its claim while this one was on its way. It is not visible yet.
  if (row.fingerprint === null) return { kind: 'in_flight' };
  if (row.fingerprint !== fingerprint) {
    fail(
      'idempotency_key_reused',
      'This Idempotency-Key was sent before with another request. Use a new key for a new request.',
    );
  }
  if (row.status === null) return { kind: 'in_flight' };
  return { kind: 'stored', reply: { status: row.status, headers: row.headers ?? {}, body: row.body ?? '' } };
}

async function finish(tx: Tx, held: Held, reply: WireReply): Promise<void> {
  const headers = Object.fromEntries(Object.entries(reply.headers).filter(([name]) => STORED_HEADERS.has(name)));
  const finished = await tx.run(
    sql`update idempotency_keys set status = ${reply.status}, headers = ${JSON.stringify(headers)}, body = ${reply.body}
        where ${keyOf(held.request)} and claim_token = ${held.token} and status is null`,
  );
  if (finished === 1) return;
  fail('idempotency_key_in_use', {
    detail: 'This request took so long that an equal one has taken over. Send it again to get its answer.',
    retryAfterSeconds: 1,
  });
}

async function release(db: Db, held: Held): Promise<void> {
  await db.tx('idempotency.release', (tx) =>
    tx.run(
      sql`delete from idempotency_keys where ${keyOf(held.request)} and claim_token = ${held.token} and status is null`,
    ),
  );
}

function keyOf({ principalId, method, path, key }: KeyedRequest): Sql {
  return sql`api_key_id = ${principalId} and method = ${method} and path = ${path} and idempotency_key = ${key}`;
}

function storable(reply: WireReply, request: KeyedRequest): WireReply {
  const { sealing } = request;
  return sealing === undefined ? reply : { ...reply, body: sealing.seal(placeOf(request), reply.body) };
}

function readable(reply: WireReply, request: KeyedRequest): WireReply {
  const { sealing } = request;
  return sealing === undefined ? reply : { ...reply, body: sealing.open(placeOf(request), reply.body) };
}

function placeOf({ principalId, method, path, key }: KeyedRequest): string {
  return JSON.stringify(['idempotency', principalId, method, path, key]);
}

function replayed(reply: WireReply): WireReply {
  return { ...reply, headers: { ...reply.headers, 'idempotent-replayed': 'true' } };
}

function fingerprintOf({ method, path, query, body }: KeyedRequest): string {
  return createHash('sha256')
    .update(JSON.stringify([method, path, canonical(query), canonical(body)]))
    .digest('hex');
}

/** A copy of the data with sorted keys, so that the order of keys in the request does not matter. */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, inner]) => [key, canonical(inner)]);
  // The entries are wrapped in an object. Otherwise an object could equal an array of pairs.
  return { entries };
}
