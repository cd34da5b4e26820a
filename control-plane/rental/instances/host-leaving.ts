// The supplier of a host says until when it offers the host, or withdraws that. The customers who have instances there are told. No instance is
// ended by this.
import type { z } from 'zod';
import { isoTime } from '../../../shared/clock.ts';
import { join, type Query, sql, type Tx } from '../../base/db/db.ts';
import type { EventRow } from '../../base/events/events.ts';
import { gpusOf } from '../../fleet/supply/store.ts';
import { instancesOf } from '../../fleet/workloads/store.ts';
import { appendEvent, type MoveDeps } from './states.ts';
import { InstanceRow, LIVE } from './store.ts';

/** Called for each event, in its transaction, which has locked the machine: no instance is placed there meanwhile. */
export async function noteEvent(tx: Tx, event: EventRow, deps: Pick<MoveDeps, 'events'>): Promise<void> {
  if (event.type !== 'machine.rentable_until') return;
  const { subject_id: machineId, data } = event;
  const { rentable_until_ms: untilMs } = data;
  const held = (await gpusOf(tx, machineId)).flatMap((gpu) => (gpu.held_by === null ? [] : [gpu.held_by]));
  const ids = await instancesOf(tx, [...new Set(held)]);
  for (const row of await rentalsOn(tx, machineId, ids)) {
    const until = typeof untilMs === 'number' ? untilMs : null;
    await setHostUntil(tx, row, until);
    const reason = reasonOf(until);
    await appendEvent(tx, row, { type: 'instance.host_leaving', status: row.status, reason, sinceMs: null }, deps);
  }
}

const HostedRow = InstanceRow.pick({
  id: true,
  org_id: true,
  status: true,
  gpu_type: true,
  gpu_count: true,
  region: true,
  machine_id: true,
  placed: true,
});
type Hosted = z.infer<typeof HostedRow>;

async function rentalsOn(query: Query, machineId: string, ids: readonly string[]): Promise<Hosted[]> {
  if (ids.length === 0) return [];
  const rows = await query.all(
    HostedRow,
    sql`select id, org_id, status, gpu_type, gpu_count, region, machine_id, placed from instances
        where id in (${join([...ids])}) and machine_id = ${machineId} order by id`,
  );
  return rows.filter(({ status }) => LIVE.has(status));
}

async function setHostUntil(
  tx: Tx,
  { id, machine_id: machineId, placed }: Hosted,
  untilMs: number | null,
): Promise<void> {
  if (placed === null) return;
  const { rentable_until_ms: _, ...rest } = placed;
  const next = untilMs === null ? rest : { ...rest, rentable_until_ms: untilMs };
  await tx.run(
    sql`update instances set placed = ${JSON.stringify(next)} where id = ${id} and machine_id = ${machineId}`,
  );
}

function reasonOf(untilMs: number | null): string {
  if (untilMs === null) return 'The supplier offers the host without an end again.';
  return `The supplier takes the host off the market at ${isoTime(untilMs)}. The instance runs on until you end it, but move what you need before.`;
}
