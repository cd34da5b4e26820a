// What operators see of machines at a glance: how many are linked, the GPUs of the market, and the machines that wait for a decision.
import { z } from 'zod';
import { int, text } from '../../base/db/columns.ts';
import { type Query, sql } from '../../base/db/db.ts';
import type { Waiting, Waits } from '../../base/http/overview.ts';
import { countMachinesByState } from './store.ts';

/** Machines that may be rented or still run rentals. */
const IN_USE: ReadonlySet<string> = new Set(['listed', 'draining']);

export async function linkedMachines(query: Query): Promise<{ listed: number; linked: number }> {
  const rows = (await countMachinesByState(query)).filter(({ status }) => IN_USE.has(status));
  const sum = (some: typeof rows): number => some.reduce((total, { count }) => total + count, 0);
  return { listed: sum(rows), linked: sum(rows.filter(({ online }) => online)) };
}

const GpusRow = z.object({ gpus: int });

/** The GPUs that are on the market now, rented or not. */
export async function gpusOffered(query: Query): Promise<number> {
  const row = await query.one(
    GpusRow,
    sql`select cast(coalesce(sum(gpu_total), 0) as bigint) as gpus from offerings where listed = 1`,
  );
  return row?.gpus ?? 0;
}

const MachineRow = z.object({ id: text, since_ms: int });

const ChangedRow = MachineRow.extend({ detail: text.nullable() });

/** Machines with a host that was linked and is not approved, those that must be approved again, and those whose identity two hosts have. */
export const waitingMachines: Waits = async (query, { limit }) => {
  const unapproved = await query.all(
    MachineRow,
    sql`select m.id, l.first_ms as since_ms from machines m join machine_links l on l.machine_id = m.id
        where m.status = 'pending_verification' and m.approved = 0 and m.public_key is not null
        order by l.first_ms, m.id limit ${limit}`,
  );
  const changed = await query.all(
    ChangedRow,
    sql`select id, awaits_approval_ms as since_ms, verification_detail as detail from machines
        where awaits_approval_ms is not null and status = 'listed' order by awaits_approval_ms, id limit ${limit}`,
  );
  const copied = await query.all(
    MachineRow,
    sql`select id, copied_ms as since_ms from machines where copied_ms is not null order by copied_ms, id limit ${limit}`,
  );
  return [
    ...unapproved.map((row) => waiting(row, `The machine ${row.id} waits for your approval.`)),
    ...changed.map((row) =>
      waiting(row, `The machine ${row.id} is off the market until you approve it again: ${row.detail ?? ''}`),
    ),
    ...copied.map((row) =>
      waiting(row, `Two hosts have the identity of the machine ${row.id}. Nothing new starts on it.`),
    ),
  ];
};

function waiting({ id, since_ms: sinceMs }: z.infer<typeof MachineRow>, what: string): Waiting {
  return { kind: 'machine', id, what, sinceMs, command: `svc-control-plane admin machine show ${id}` };
}
