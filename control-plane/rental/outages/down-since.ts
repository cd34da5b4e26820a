// What the probes have against a rental, in words and as a time.
import type { Query } from '../../base/db/db.ts';
import type { Down } from '../instances/states.ts';
import { findProbe, type ProbeRow } from './store.ts';
import { isDown, type Series } from './verdict.ts';

/**
 * Since when a rental is down, even while the verdict on it is held; undefined if it is not, or not for long enough. `isAnswering`: the
 * link of its machine is up and answers.
 */
export async function downSince(
  query: Query,
  instanceId: string,
  { isAnswering, nowMs }: { isAnswering(machineId: string): boolean; nowMs: number },
): Promise<Down | undefined> {
  const row = await findProbe(query, instanceId);
  if (row === undefined || !isDown(seriesOf(row), { isAnswering: isAnswering(row.machine_id), nowMs }))
    return undefined;
  return { sinceMs: row.life_ms ?? row.first_failure_ms ?? nowMs, evidence: evidenceOf(row) };
}

export function seriesOf(row: ProbeRow): Series {
  return {
    firstFailureMs: row.first_failure_ms,
    failures: row.failures,
    lifeMs: row.life_ms,
    repairMs: row.repair_ms,
    firstSuccessMs: row.first_success_ms,
    successes: row.successes,
  };
}

/** Both vantages: ours, and what the host itself has seen. */
export function evidenceOf(row: ProbeRow): string {
  const at = (ms: number): string => new Date(ms).toISOString();
  const since = row.first_failure_ms === null ? '' : ` since ${at(row.first_failure_ms)}`;
  const life = row.life_ms === null ? '' : `; last proof of life ${at(row.life_ms)}`;
  const repair = row.repair_ms === null ? '' : `; its holder was to be replaced at ${at(row.repair_ms)}`;
  const host = row.host_detail === null ? '' : `; the host said: ${row.host_detail}`;
  return `${row.failures} failed SSH probes${since}; last: ${row.last_detail}${life}${repair}${host}`;
}
