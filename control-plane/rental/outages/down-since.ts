// Says since when an instance is out of reach, and with which evidence, from its series of probes.
import type { Query } from '../../base/db/db.ts';
import type { Down } from '../instances/states.ts';
import { findProbe, type ProbeRow } from './store.ts';
import { isDown, type Series } from './verdict.ts';

/**
 * Since when an instance is down, also while its verdict is held; undefined if it is not down for long enough. `isAnswering`: the link of
 * its machine is up and answers.
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

/** The evidence for an outage: our own probes, and what the host has reported. */
export function evidenceOf(row: ProbeRow): string {
  const at = (ms: number): string => new Date(ms).toISOString();
  const since = row.first_failure_ms === null ? '' : ` since ${at(row.first_failure_ms)}`;
  const life = row.life_ms === null ? '' : `; last proof of life ${at(row.life_ms)}`;
  const repair = row.repair_ms === null ? '' : `; the host was asked to replace its holder at ${at(row.repair_ms)}`;
  const host = row.host_detail === null ? '' : `; the host reported: ${row.host_detail}`;
  return `${row.failures} failed SSH probes${since}; last: ${row.last_detail}${life}${repair}${host}`;
}
