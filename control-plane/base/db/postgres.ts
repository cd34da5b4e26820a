// PostgreSQL driver. Each kind of work has connections of its own:
//
//   db.tx        16 lanes: each runs one body in a transaction of its own (postgres-lanes.ts)
//   db.keeper    one more lane: the renewal of the lease
//   db.patient   one more lane, without a limit for a statement: migrations
//   db.hot       one connection: bodies that are one statement, many in one packet (postgres-packets.ts)
//   db.read      a pool: single statements on committed data
//   db.snapshot  the same pool: several reads of the same moment
//
// Each transaction checks the lease of this process in the packet that begins it: `primary`, or that of a secondary (members.ts).
import type { Pool, PoolClient } from 'pg';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Rng } from '../../../shared/rng.ts';
import { decoding, openBodies } from './bodies.ts';
import { type Db, engineError, type HotBody, type Query, type Tx } from './db.ts';
import { type OnCommit, openGroupCommit } from './group-commit.ts';
import type { Held } from './lease.ts';
import {
  BEGIN_SNAPSHOT,
  borrow,
  COMMIT,
  fenceOf,
  openPool,
  openStatements,
  type Writing,
} from './postgres-connections.ts';
import { type Lanes, openLanes } from './postgres-lanes.ts';
import { BODIES_PER_PACKET_MAX, sendPacket } from './postgres-packets.ts';
import { type Asked, openPipelines } from './postgres-pipeline.ts';
import { openReach } from './reach.ts';

/** Connections for reads. */
const READERS_MAX = 8;
/** Bodies that run side by side. More would wait for each other inside the server. */
const LANES_MAX = 16;

export interface PostgresDb extends Db {
  /**
   * Renews the lease. It has a lane of its own: behind the queue of a busy process, the renewal would come too late, and the process would
   * end itself.
   */
  keeper: Pick<Db, 'tx'>;
  /** Migrations run here, because an index on a large table takes longer than any statement of a caller may. */
  patient: Pick<Db, 'tx'>;
  /** Each transaction from now on is refused with `lease_lost` if another process holds the lease. */
  fence(held: Held): void;
}

interface PostgresDeps {
  clock: Clock;
  log: Log;
  rng: Rng;
  onCommit?: OnCommit;
}

/** Opens a pool on `url` (`postgres://...`). Connections are made when first needed. */
export function openPostgres(url: string, deps: PostgresDeps): PostgresDb {
  const { clock, rng, onCommit } = deps;
  const reach = openReach(deps);
  const writers = openPool(url, { max: LANES_MAX + 2 }, reach);
  const statements = openStatements();
  const ask = openPipelines();
  const openReaders = (): Pool => openPool(url, { max: READERS_MAX }, reach);
  let readers = openReaders();
  let fence: Asked | undefined;
  const writing: Writing = {
    writers,
    statements,
    ask,
    fence: () => fence,
    onAway: () => {
      const before = readers;
      readers = openReaders();
      void before.end();
    },
    reach,
  };
  const bodies = openBodies();
  const lanes = openLanes(LANES_MAX, writing, { clock, rng, onCommit });
  const ownLane = openLanes(1, writing, { clock, rng, onCommit });
  const patientWriters = openPool(url, { max: 1, unlimited: true }, reach);
  const patientLane = openLanes(1, { ...writing, writers: patientWriters }, { clock, rng, onCommit });
  const through =
    ({ run }: Lanes): Db['tx'] =>
    async <T>(name: string, body: (tx: Tx) => Promise<T>) =>
      (await run(bodies.make(name, body))) as T;
  const packets = openGroupCommit<HotBody<unknown>>((packet) => sendPacket(packet, writing, { clock, rng }), {
    clock,
    batchMax: BODIES_PER_PACKET_MAX,
    onCommit,
  });

  return {
    dialect: 'postgres',
    read: bodies.outside(
      decoding((statement) =>
        onReader({ pool: readers, reach }, async (client) => (await ask(client, statements.prepared(statement))).rows),
      ),
    ),
    tx: through(lanes),
    keeper: { tx: through(ownLane) },
    patient: { tx: through(patientLane) },
    hot: async <T>(body: HotBody<T>) => {
      bodies.refuseNested(body.name);
      return (await packets.add(body)) as T;
    },
    snapshot: async <T>(name: string, body: (query: Query) => Promise<T>) => {
      bodies.refuseNested(name);
      return onReader({ pool: readers, reach }, (client) => inSnapshot(client, writing, body));
    },
    fence: (held) => {
      fence = fenceOf(held);
    },
    close: async () => {
      await packets.idle();
      await lanes.idle();
      await ownLane.idle();
      await patientLane.idle();
      await patientWriters.end();
      await writers.end();
      await readers.end();
    },
  };
}

async function onReader<T>(
  readers: Parameters<typeof borrow>[0],
  work: (client: PoolClient) => Promise<T>,
): Promise<T> {
  try {
    return await borrow(readers, async (client, drop) => {
      try {
        return await work(client);
      } catch (error) {
        // A new connection is cheaper than the proof that this one is still good.
        drop();
        throw error;
      }
    });
  } catch (error) {
    throw engineError(error);
  }
}

/** BEGIN travels in one packet with the first read. If it fails, that read fails with the same error. */
async function inSnapshot<T>(
  client: PoolClient,
  { ask, statements }: Pick<Writing, 'ask' | 'statements'>,
  body: (query: Query) => Promise<T>,
): Promise<T> {
  const begun = ask(client, BEGIN_SNAPSHOT);
  begun.catch(() => undefined);
  const value = await body(decoding(async (statement) => (await ask(client, statements.prepared(statement))).rows));
  await begun;
  await ask(client, COMMIT);
  return value;
}
