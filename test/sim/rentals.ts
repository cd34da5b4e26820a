// The life of each rental, from the journal that customers read.
import { z } from 'zod';
import { int, json, text, ucents } from '../../control-plane/base/db/columns.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import type { World } from '../kit/world.ts';
import type { Span } from './spans.ts';

export interface Rental {
  id: string;
  orgId: string;
  machineId: string;
  supplierId: string;
  workloadId: string;
  /** The price of the whole instance, as the API shows it. */
  ucentsPerHour: bigint;
  /** When it ran for the first time. */
  readyMs: number;
  /** The time at which the journal says that it was over; Infinity before. */
  endMs: number;
  /** The spans in which it ran, as the journal says. */
  running: Span[];
  /** The outages in the journal, each from the last proof of life before it to the first one after it. */
  dead: Span[];
  /** True if it was given up after an outage. */
  givenUp: boolean;
}

const RowOfInstance = z.object({
  id: text,
  org_id: text,
  machine_id: text,
  supplier_id: text,
  workload_id: text,
  price_ucents_per_hour: ucents,
});
const Data = z.object({ since_ms: z.int().nullable().optional() });
const RowOfEvent = z.object({ type: text, subject_id: text, created_ms: int, data: json(Data) });

/** All rentals that have ever run. */
export async function readRentals({ db }: World): Promise<Rental[]> {
  const rows = await db.read.all(
    RowOfInstance,
    sql`select id, org_id, machine_id, supplier_id, workload_id, price_ucents_per_hour from instances where ready_ms is not null
        order by created_ms, id`,
  );
  const events = await db.read.all(
    RowOfEvent,
    sql`select type, subject_id, created_ms, data from events where type like 'instance.%' order by created_ms, id`,
  );
  const journals = Map.groupBy(events, (event) => event.subject_id);
  return rows.map((row) => ({
    id: row.id,
    orgId: row.org_id,
    machineId: row.machine_id,
    supplierId: row.supplier_id,
    workloadId: row.workload_id,
    ucentsPerHour: row.price_ucents_per_hour,
    ...pastOf(journals.get(row.id) ?? []),
  }));
}

const OVER = new Set(['instance.stopping', 'instance.terminated', 'instance.failed']);

type Past = Pick<Rental, 'readyMs' | 'endMs' | 'running' | 'dead' | 'givenUp'>;

function pastOf(journal: readonly z.infer<typeof RowOfEvent>[]): Past {
  const past: Past = { readyMs: Infinity, endMs: Infinity, running: [], dead: [], givenUp: false };
  let [runsSinceMs, deadSinceMs]: (number | undefined)[] = [undefined, undefined];
  for (const { type, created_ms: atMs, data } of journal) {
    if (past.endMs < Infinity) break;
    const isUp = type === 'instance.running' || type === 'instance.recovered';
    if (!isUp && type !== 'instance.unreachable' && !OVER.has(type)) continue;
    const sinceMs = data.since_ms ?? atMs;
    if (runsSinceMs !== undefined) past.running.push([runsSinceMs, atMs]);
    if (deadSinceMs !== undefined) past.dead.push([deadSinceMs, isUp ? sinceMs : atMs]);
    if (OVER.has(type)) {
      // The outage was not confirmed yet.
      if (runsSinceMs !== undefined && sinceMs < atMs) past.dead.push([sinceMs, atMs]);
      past.endMs = atMs;
      past.givenUp = type === 'instance.failed' && deadSinceMs !== undefined;
    }
    runsSinceMs = isUp ? sinceMs : undefined;
    deadSinceMs = type === 'instance.unreachable' ? sinceMs : undefined;
    past.readyMs = Math.min(past.readyMs, isUp ? atMs : Infinity);
  }
  if (runsSinceMs !== undefined) past.running.push([runsSinceMs, Infinity]);
  if (deadSinceMs !== undefined) past.dead.push([deadSinceMs, Infinity]);
  return past;
}
