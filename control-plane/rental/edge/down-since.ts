// What the probes have against a rental, in words and as a time.
import type { Query } from '../../base/db/db.ts';
import type { Down } from '../instances/states.ts';
import { findProbe, type ProbeRow } from './store.ts';
import { isDown, type Series } from './verdict.ts';

/** Since when the SSH path of a rental is down, also where the verdict on it is held; undefined where it is not, or not for long enough. */
export async function downSince(query: Query, instanceId: string, nowMs: number): Promise<Down | undefined> {
  const row = await findProbe(query, instanceId);
  if (row === undefined || row.first_failure_ms === null || !isDown(seriesOf(row), nowMs)) return undefined;
  return { sinceMs: row.first_failure_ms, evidence: evidenceOf(row) };
}

export function seriesOf(row: ProbeRow): Series {
  return { firstFailureMs: row.first_failure_ms, failures: row.failures, successes: row.successes };
}

export function evidenceOf(row: ProbeRow): string {
  const since = row.first_failure_ms === null ? '' : ` since ${new Date(row.first_failure_ms).toISOString()}`;
  return `${row.failures} failed SSH probes${since}; last: ${row.last_detail}`;
}
