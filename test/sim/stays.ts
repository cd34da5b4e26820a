// What became of each rental, from the journal that customers read and the looks that came from outside.
import { z } from 'zod';
import { int, text, ucents } from '../../control-plane/base/db/columns.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import type { World } from '../kit/world.ts';
import type { Span } from './spans.ts';
import type { Look, Witness } from './witness.ts';

export interface Stay {
  id: string;
  orgId: string;
  machineId: string;
  supplierId: string;
  workloadId: string;
  /** Of the whole instance, as the API shows it. */
  ucentsPerHour: bigint;
  /** When it ran for the first time. */
  readyMs: number;
  /** When it was said to be over; Infinity before. */
  endMs: number;
  /** It was said to run. */
  running: Span[];
  /** Confirmed outages, each from the first failed look on; and one that would have been, had the rental not ended. */
  dead: Span[];
  /** It was given up after an outage. */
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
const RowOfEvent = z.object({ type: text, subject_id: text, created_ms: int });

/** All rentals that have ever run. */
export async function readStays({ db }: World, witness: Witness): Promise<Stay[]> {
  const rows = await db.read.all(
    RowOfInstance,
    sql`select id, org_id, machine_id, supplier_id, workload_id, price_ucents_per_hour from instances where ready_ms is not null
        order by created_ms, id`,
  );
  const events = await db.read.all(
    RowOfEvent,
    sql`select type, subject_id, created_ms from events where type like 'instance.%' order by created_ms, id`,
  );
  const journals = Map.groupBy(events, (event) => event.subject_id);
  const looks = Map.groupBy(witness.looks, (look) => look.instanceId);
  return rows.map((row) => ({
    id: row.id,
    orgId: row.org_id,
    machineId: row.machine_id,
    supplierId: row.supplier_id,
    workloadId: row.workload_id,
    ucentsPerHour: row.price_ucents_per_hour,
    ...pastOf(journals.get(row.id) ?? [], looks.get(row.id) ?? []),
  }));
}

const OVER = new Set(['instance.stopping', 'instance.terminated', 'instance.failed']);

type Past = Pick<Stay, 'readyMs' | 'endMs' | 'running' | 'dead' | 'givenUp'>;

function pastOf(journal: readonly z.infer<typeof RowOfEvent>[], looks: readonly Look[]): Past {
  const past: Past = { readyMs: Infinity, endMs: Infinity, running: [], dead: [], givenUp: false };
  let [runsSinceMs, deadSinceMs]: (number | undefined)[] = [undefined, undefined];
  for (const { type, created_ms: atMs } of journal) {
    if (past.endMs < Infinity) break;
    const isUp = type === 'instance.running' || type === 'instance.recovered';
    if (!isUp && type !== 'instance.unreachable' && !OVER.has(type)) continue;
    if (runsSinceMs !== undefined) past.running.push([runsSinceMs, atMs]);
    if (deadSinceMs !== undefined) past.dead.push([deadSinceMs, atMs]);
    if (OVER.has(type)) {
      if (runsSinceMs !== undefined) past.dead.push(...unsaidOutage(looks, atMs));
      past.endMs = atMs;
      past.givenUp = type === 'instance.failed' && deadSinceMs !== undefined;
    }
    runsSinceMs = isUp ? atMs : undefined;
    deadSinceMs = type === 'instance.unreachable' ? firstFailureMs(looks, atMs) : undefined;
    past.readyMs = Math.min(past.readyMs, isUp ? atMs : Infinity);
  }
  if (runsSinceMs !== undefined) past.running.push([runsSinceMs, Infinity]);
  if (deadSinceMs !== undefined) past.dead.push([deadSinceMs, Infinity]);
  return past;
}

/** Three failed looks over twenty seconds are an outage, whatever keeps it from being said. */
function unsaidOutage(looks: readonly Look[], atMs: number): Span[] {
  const sinceMs = firstFailureMs(looks, atMs);
  const failures = looks.filter((look) => look.startMs >= sinceMs && look.endMs <= atMs).length;
  return failures >= 3 && atMs - sinceMs >= 20_000 ? [[sinceMs, atMs]] : [];
}

/** The beginning of the first look of those that failed one after another until then. */
function firstFailureMs(looks: readonly Look[], atMs: number): number {
  let firstMs = atMs;
  for (const look of looks.filter(({ endMs }) => endMs <= atMs).toReversed()) {
    if (look.ok) break;
    firstMs = look.startMs;
  }
  return firstMs;
}
