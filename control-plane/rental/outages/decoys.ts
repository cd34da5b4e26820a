// Decoys: rare test logins that a host cannot tell from logins of the customer.
//
// A host can recognise a probe by the kind of its stream, so it could serve probes and nobody else. A decoy looks like a customer: a stream
// of the kind `ssh`, a key among the keys that may log in, a client address, and a client that calls itself OpenSSH. If a host accepts
// probes but refuses decoys three times in a row, it is taken off the market until the operator has checked it. Nothing else follows:
// no credit, and nothing against the customer.
import { z } from 'zod';
import { spreadMs } from '../../../shared/backoff.ts';
import type { Clock } from '../../../shared/clock.ts';
import { SSH_CONNECTIONS_MAX } from '../../../shared/limits.ts';
import { messageOf } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import type { Rng } from '../../../shared/rng.ts';
import { int, text } from '../../base/db/columns.ts';
import { type Db, type Query, type Tx, sql } from '../../base/db/db.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import type { Link } from '../../fleet/link/link.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import { findInstance, type InstanceRow, type KeyedRow } from '../instances/store.ts';
import type { Login, LoginKey, LoginResult } from './probe.ts';
import { findProbe } from './store.ts';
import { TIMED_IN_MEMORY } from './wells.ts';

/** Time between two decoys while all is well. */
const PERIOD_MS = 3_600_000;
/** Time until the next decoy if one failed, or if a failure would prove nothing. */
const AGAIN_MS = 5 * 60_000;
const FAILURES_MIN = 3;
/**
 * If clients of more networks than this may be logging in, a decoy may fail only because the SSH server is full. The server serves each network
 * in turn, and a decoy has one of its own. So idle connections of a few addresses do not keep decoys away.
 */
const CROWD_NETWORKS_MAX = 8;
const PER_RUN_MAX = 50;
/** The identification string of a very common client. */
const IDENT = 'OpenSSH_9.6p1 Ubuntu-3ubuntu13.14';
const USER = 'root';
/** First octets of networks of large internet providers. */
const FIRST_OCTETS = [24, 46, 62, 71, 73, 78, 81, 84, 86, 88, 91, 93, 95, 98, 108, 151, 176, 178, 188, 213, 217];

const DecoyRow = z.object({
  instance_id: text,
  machine_id: text,
  key_sealed: text,
  key_line: text,
  next_ms: int,
  failures: int,
  last_detail: text.nullable(),
});
type DecoyRow = z.infer<typeof DecoyRow>;

export interface Decoys {
  /** Makes the decoy of an instance that begins to run. */
  start(tx: Tx, rental: { instanceId: string; machineId: string; nowMs: number }): Promise<void>;
  /** OpenSSH lines of the keys that may log in: the customer's and the decoy's, sorted so that the order reveals nothing. */
  loginKeysOf(query: Query, instance: KeyedRow): Promise<string[]>;
  /** Makes every decoy login that is due. */
  run(signal: AbortSignal): Promise<void>;
}

interface DecoysDeps {
  db: Db;
  clock: Clock;
  log: Log;
  rng: Rng;
  sealing: Sealing;
  endpoints: Pick<Endpoints, 'find'>;
  link: Pick<Link, 'openStream' | 'lifeOf'>;
  newKey(): LoginKey;
  /** OpenSSH lines of the keys that the customer of an instance logs in with. */
  customerKeysOf(query: Query, instance: KeyedRow): Promise<string[]>;
  logIn(login: Login, openStream: () => ReturnType<Link['openStream']>, clock: Clock): Promise<LoginResult>;
  /** Takes a machine off the market until the operator has checked it. */
  accuse(tx: Tx, machineId: string, detail: string): Promise<void>;
}

export function openDecoys(deps: DecoysDeps): Decoys {
  const { db, clock, log } = deps;
  return {
    start: async (tx, { instanceId, machineId, nowMs }) => {
      const key = deps.newKey();
      const sealed = deps.sealing.seal(placeOf(instanceId), key.privateKey);
      await tx.run(
        sql`insert into decoys (instance_id, machine_id, key_sealed, key_line, next_ms)
            values (${instanceId}, ${machineId}, ${sealed}, ${withoutComment(key.publicLine)}, ${nowMs + spreadMs(AGAIN_MS, deps.rng)})
            on conflict (instance_id) do nothing`,
      );
    },
    loginKeysOf: (query, instance) => loginKeysOf(query, instance, deps),
    run: async (signal) => {
      const due = await db.read.all(
        DecoyRow,
        sql`select instance_id, machine_id, key_sealed, key_line, next_ms, failures, last_detail from decoys
            where next_ms <= ${clock.now()} order by next_ms limit ${PER_RUN_MAX}`,
      );
      for (const row of due) {
        if (signal.aborted) return;
        await runOne(row, deps).catch(async (error: unknown) => {
          log.error(
            { instance_id: row.instance_id, reason: messageOf(error) },
            'a decoy failed on our side; it is repeated after some minutes',
          );
          // Otherwise it would be the first of the due ones at each run, and many such would keep all others from their turn.
          await db.tx('decoys.put_off', (tx) =>
            tx.run(sql`update decoys set next_ms = ${nextMs(AGAIN_MS, deps)} where instance_id = ${row.instance_id}`),
          );
        });
      }
    },
  };
}

async function runOne(row: DecoyRow, deps: DecoysDeps): Promise<void> {
  const { db } = deps;
  const instance = await findInstance(db.read, row.instance_id);
  if (instance === undefined || !['running', 'unreachable'].includes(instance.status)) {
    return db.tx('decoys.forget', async (tx) => {
      await tx.run(sql`delete from decoys where instance_id = ${row.instance_id}`);
    });
  }
  const result = (await wouldProve(instance, deps)) ? await attempt(row, instance, deps) : undefined;
  let { failures } = row;
  if (result !== undefined) failures = result.ok ? 0 : failures + 1;
  const isFound = result?.ok === false && failures >= FAILURES_MIN;
  const detail = result === undefined || result.ok ? row.last_detail : result.detail;
  const periodMs = result?.ok === true || isFound ? PERIOD_MS : AGAIN_MS;
  await db.tx('decoys.looked', async (tx) => {
    await tx.lock('machine', row.machine_id);
    await tx.run(
      sql`update decoys set next_ms = ${nextMs(periodMs, deps)}, failures = ${isFound ? 0 : failures}, last_detail = ${detail}
          where instance_id = ${row.instance_id}`,
    );
    if (!isFound) return;
    const accusation = `it accepts our probes and refused ${failures} logins that look like the customer's (${detail})`;
    await deps.accuse(tx, row.machine_id, accusation);
  });
}

function nextMs(periodMs: number, { clock, rng }: DecoysDeps): number {
  return clock.now() + spreadMs(periodMs, rng);
}

/** A failed decoy proves something only if a customer could log in: probes are good, and the SSH server is not full. */
async function wouldProve(instance: InstanceRow, { db, link, log }: DecoysDeps): Promise<boolean> {
  if (instance.status !== 'running' || instance.machine_id === null) return false;
  const isProbed = (await findProbe(db.read, instance.id))?.next_ms === TIMED_IN_MEMORY;
  const { isAnswering, sshStreams, sshNetworks } = link.lifeOf(instance.machine_id, instance.workload_id ?? '');
  if (!isProbed || !isAnswering) return false;
  if (sshNetworks <= CROWD_NETWORKS_MAX && sshStreams < SSH_CONNECTIONS_MAX) return true;
  const crowd = {
    instance_id: instance.id,
    machine_id: instance.machine_id,
    streams: sshStreams,
    networks: sshNetworks,
  };
  log.warn(crowd, 'so many clients use the SSH server of an instance that its host cannot be tested with a decoy');
  return false;
}

async function attempt(row: DecoyRow, instance: InstanceRow, deps: DecoysDeps): Promise<LoginResult> {
  const { db, endpoints, link, rng, clock, sealing } = deps;
  const endpoint = await endpoints.find(db.read, instance.id);
  const keys = await loginKeysOf(db.read, instance, deps);
  const target = { kind: 'ssh' as const, authorized_keys: keys, client_ip: someAddress(rng) };
  const login = {
    user: USER,
    privateKey: sealing.open(placeOf(instance.id), row.key_sealed),
    hostKey: endpoint?.host_key ?? null,
    ident: IDENT,
  };
  return deps.logIn(login, () => link.openStream(row.machine_id, instance.workload_id ?? '', target), clock);
}

const KeyLineRow = z.object({ key_line: text });

async function loginKeysOf(
  query: Query,
  instance: KeyedRow,
  { customerKeysOf }: Pick<DecoysDeps, 'customerKeysOf'>,
): Promise<string[]> {
  const lines = await customerKeysOf(query, instance);
  const row = await query.one(KeyLineRow, sql`select key_line from decoys where instance_id = ${instance.id}`);
  return row === undefined ? lines : [...lines, row.key_line].toSorted();
}

/** The stored keys of customers have no comment either, so a comment would reveal the decoy. */
function withoutComment(line: string): string {
  return line.split(' ').slice(0, 2).join(' ');
}

function someAddress(rng: Rng): string {
  const octet = (): number => 1 + Math.floor(rng.float() * 253);
  const first = FIRST_OCTETS[Math.floor(rng.float() * FIRST_OCTETS.length)] ?? 81;
  return [first, octet(), octet(), octet()].join('.');
}

function placeOf(instanceId: string): string {
  return `decoys.key_sealed:${instanceId}`;
}
