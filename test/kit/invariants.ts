// Proves what holds in every world, whatever its test does: each hold has an owner, and each host was sent its desired state.
import { z } from 'zod';
import { json, text } from '../../control-plane/base/db/columns.ts';
import { type Db, type Sql, sql } from '../../control-plane/base/db/db.ts';
import type { Rooms } from '../../control-plane/rooms.ts';

/** Resolves if every hold has an owner and every host was sent its desired state. @throws Error that names what is broken */
export type Invariants = () => Promise<void>;

/** `db` is the database itself: the connection of a simulated process may wait for the clock, or be closed. */
export async function openInvariants(
  rooms: Pick<Rooms, 'link'>,
  db: Db,
  { isSimulated }: { isSimulated: boolean },
): Promise<Invariants> {
  const pushes = await watchPushes(rooms, db);
  return async () => {
    // A simulated process may wait, or have died, between a commit and the push that follows it.
    const faults = [...(await orphanHolds(db)), ...(isSimulated ? [] : await pushes.unsent())];
    if (faults.length > 0) throw new Error(`an invariant of every world is broken: ${faults.join('; ')}`);
  };
}

/** Queries the owners that a hold may have, by the first part of its id. Holds that a test makes itself begin with `test:`. */
const HELD_FOR = {
  rental: sql`select id from instances where status in ('allocating', 'starting')
    union select subject_id as id from meter_segments where ended_ms is null`,
  inference: sql`select id from request_receipts where state = 'open'`,
  video: sql`select id from video_jobs where status in ('queued', 'in_progress')`,
  finetune: sql`select id from finetuning_jobs where status in ('validating', 'queued', 'running')`,
};
const IdRow = z.object({ id: text });

/** Returns a sentence for each hold without an owner: it would lock a customer's money for ever. */
async function orphanHolds(db: Db): Promise<string[]> {
  const holds = await db.read.all(IdRow, sql`select id from holds where id not like 'test:%' order by id`);
  const owned = await Promise.all(
    Object.entries(HELD_FOR).map(async ([kind, owners]) =>
      (await db.read.all(IdRow, owners)).map(({ id }) => `${kind}:${id}`),
    ),
  );
  const known = new Set(owned.flat());
  return holds.filter(({ id }) => !known.has(id)).map(({ id }) => `the hold ${id} has no owner that is under way`);
}

interface Pushes {
  /** Resolves with a sentence for each workload whose host was last sent another desired state than the present one. */
  unsent(): Promise<string[]>;
}

/**
 * Notes what each host is sent from now on. What is desired at this moment counts as sent: a process that starts sends it over each
 * link that comes up.
 */
async function watchPushes({ link }: Pick<Rooms, 'link'>, db: Db): Promise<Pushes> {
  /** The desired state that its host was sent last, by workload. */
  const sent = await wanted(db, sql`1 = 1`);
  let reading = Promise.resolve();
  const { push } = link;
  link.push = (machineId) => {
    push(machineId);
    const read = wanted(db, sql`machine_id = ${machineId}`);
    reading = Promise.all([reading, read]).then(([, rows]) => rows.forEach((row, id) => sent.set(id, row)));
  };
  return {
    unsent: async () => {
      await reading;
      return [...(await wanted(db, sql`1 = 1`))].flatMap(([id, now]) =>
        sent.get(id) === now
          ? []
          : [`the host of ${id} was sent ${sent.get(id) ?? 'nothing'}, the desired state is ${now}`],
      );
    },
  };
}

const WantedRow = z.object({ id: text, state: text, spec: json(z.object({ ends_at_ms: z.number().nullable() })) });

/** Describes the desired state of these workloads. A workload that is gone has none. */
async function wanted(db: Db, where: Sql): Promise<Map<string, string>> {
  const rows = await db.read.all(
    WantedRow,
    sql`select id, state, spec from workloads where state <> 'gone' and ${where} order by id`,
  );
  return new Map(rows.map(({ id, state, spec }) => [id, `${state} until ${spec.ends_at_ms ?? 'further notice'}`]));
}
