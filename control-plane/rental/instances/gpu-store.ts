// The SQL of what hosts report about the GPUs of instances.
import type { z } from 'zod';
import { join, type Query, sql, type Tx } from '../../base/db/db.ts';
import { InstanceRow } from './store.ts';

const GpuStateRow = InstanceRow.pick({
  id: true,
  org_id: true,
  supplier_id: true,
  workload_id: true,
  status: true,
  gpu_fault: true,
  gpu_whole_ms: true,
});

/** What is known of the GPUs of these instances. It needs no document, so one that cannot be read keeps no other instance from its turn. */
export function gpuStatesOf(query: Query, ids: readonly string[]): Promise<z.infer<typeof GpuStateRow>[]> {
  if (ids.length === 0) return Promise.resolve([]);
  return query.all(
    GpuStateRow,
    sql`select id, org_id, supplier_id, workload_id, status, gpu_fault, gpu_whole_ms from instances
        where id in (${join([...ids])}) order by id`,
  );
}

export async function setGpuFault(
  tx: Tx,
  id: string,
  { fault, nowMs }: { fault: string | null; nowMs: number },
): Promise<void> {
  const sinceMs = fault === null ? null : nowMs;
  await tx.run(
    sql`update instances set gpu_fault = ${fault}, gpu_fault_since_ms = ${sinceMs}, gpu_whole_ms = null where id = ${id}`,
  );
}

/** Notes when the host has reported the GPUs whole, which does not count yet; null if it has reported them broken again. */
export async function setGpuWhole(tx: Tx, id: string, wholeMs: number | null): Promise<void> {
  await tx.run(sql`update instances set gpu_whole_ms = ${wholeMs} where id = ${id}`);
}
