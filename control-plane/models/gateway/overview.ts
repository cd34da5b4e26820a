// What operators see of the requests to each model at a glance, from the receipts of all control planes.
import { z } from 'zod';
import type { OverviewTraffic } from '../../../shared/api/overview.ts';
import { int, text } from '../../base/db/columns.ts';
import { type Query, sql } from '../../base/db/db.ts';

const WINDOW_MS = 300_000;
/** Largest number of receipts that are read. If there are more, the figures come from the newest receipts and the time that these cover. */
const READ_MAX = 5_000;
const P95 = 0.95;

const ClosedRow = z.object({ model_id: text, ending: text.nullable(), opened_ms: int, closed_ms: int });
type Closed = z.infer<typeof ClosedRow>;

export async function modelTraffic(query: Query, nowMs: number): Promise<OverviewTraffic[]> {
  const rows = await query.all(
    ClosedRow,
    sql`select model_id, ending, opened_ms, closed_ms from request_receipts
        where closed_ms > ${nowMs - WINDOW_MS} and closed_ms is not null order by closed_ms desc limit ${READ_MAX}`,
  );
  const oldestMs = rows.length < READ_MAX ? nowMs - WINDOW_MS : (rows.at(-1)?.closed_ms ?? nowMs);
  const seconds = Math.max(1, nowMs - oldestMs) / 1_000;
  return [...Map.groupBy(rows, (row) => row.model_id)]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([model, closed]) => ({
      model,
      requests: closed.length,
      requests_per_second: closed.length / seconds,
      p95_ms: p95Ms(closed),
      failed: closed.filter(({ ending }) => ending === 'upstream_failed').length,
    }));
}

/** Only requests that were answered to their end count. */
function p95Ms(closed: readonly Closed[]): number | null {
  const times = closed.filter(({ ending }) => ending === 'completed').map((row) => row.closed_ms - row.opened_ms);
  return times.toSorted((a, b) => a - b)[Math.max(0, Math.ceil(times.length * P95) - 1)] ?? null;
}
