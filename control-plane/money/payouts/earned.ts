// The earnings of each machine of a supplier since a given time, as far as they are posted.
import type { Query } from '../../base/db/db.ts';
import { earnedBySubject } from '../ledger/suppliers.ts';

/** The machine of each instance. A room above provides this function. */
export type MachinesOf = (query: Query, instanceIds: readonly string[]) => Promise<Map<string, string>>;

export async function earnedByMachine(
  query: Query,
  { supplierId, sinceMs }: { supplierId: string; sinceMs: number },
  machinesOf: MachinesOf,
): Promise<Map<string, bigint>> {
  const earned = await earnedBySubject(query, supplierId, sinceMs);
  const machines = await machinesOf(
    query,
    earned.map(({ subject_id: instanceId }) => instanceId),
  );
  const sums = new Map<string, bigint>();
  for (const { subject_id: instanceId, amount_ucents: ucents } of earned) {
    const machineId = machines.get(instanceId);
    if (machineId !== undefined) sums.set(machineId, (sums.get(machineId) ?? 0n) + ucents);
  }
  return sums;
}
