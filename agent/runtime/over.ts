// Whether a workload has ended while a step for it was at work: an engine may hang for minutes in one call, and inputs take long to come.
import type { Desired } from './desired.ts';
import type { Records } from './records.ts';

/** True if no container of the workload may be made or started any more. A list that does not name the workload ends nothing. */
export function isOver(
  workloadId: string,
  { desired, records }: { desired: Pick<Desired, 'held'>; records: Pick<Records, 'all'> },
): boolean {
  const record = records.all().get(workloadId);
  const wanted = desired.held()?.workloads.find(({ workload_id: id }) => id === workloadId);
  return record?.failure != null || record?.removing === true || wanted?.desired === 'removed';
}
