// Follows every row that has states: no row makes a move that its state table forbids.
import { z } from 'zod';
import { text } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import {
  INSTANCE_STATES,
  MACHINE_STATES,
  OPERATION_STATES,
  RESERVATION_STATES,
  type StateTable,
  WEBHOOK_DELIVERY_STATES,
  WEBHOOK_ENDPOINT_STATES,
  WORKLOAD_STATES,
} from '../../../../shared/states.ts';
import type { World } from '../../../kit/world.ts';

export interface Watcher {
  /** A sentence for each row with a forbidden move. A row may have moved more than once since the last check. */
  strays(world: World): Promise<string[]>;
}

type AnyTable = StateTable<string>;
const KINDS: Record<string, AnyTable> = {
  instance: INSTANCE_STATES,
  operation: OPERATION_STATES,
  workload: WORKLOAD_STATES,
  machine: MACHINE_STATES,
  reservation: RESERVATION_STATES,
  endpoint: WEBHOOK_ENDPOINT_STATES,
  delivery: WEBHOOK_DELIVERY_STATES,
};

const ALL_ROWS = sql`
  select id, 'instance' as kind, status as state from instances
  union all select id, 'operation', state from operations
  union all select id, 'workload', state from workloads
  union all select id, 'machine', status from machines
  union all select id, 'reservation', status from reservations
  union all select id, 'endpoint', status from webhook_endpoints
  union all select id, 'delivery', status from webhook_deliveries`;
const Row = z.object({ id: text, kind: text, state: text });

/** The watcher of one life. Each `kind state` that it sees goes into `seen`. */
export function openWatcher(seen: Set<string>): Watcher {
  const states = new Map<string, string>();
  return {
    strays: async ({ db }) => {
      const rows = await db.read.all(Row, ALL_ROWS);
      return rows.flatMap(({ id, kind, state }) => {
        const table = KINDS[kind] ?? {};
        const before = states.get(id) ?? state;
        states.set(id, state);
        seen.add(`${kind} ${state}`);
        return state in table && reaches(table, before, state) ? [] : [`${kind} ${id} went from ${before} to ${state}`];
      });
    },
  };
}

/** The others, of all kinds. */
export function unseen(seen: ReadonlySet<string>): string[] {
  const all = Object.entries(KINDS).flatMap(([kind, table]) => Object.keys(table).map((state) => `${kind} ${state}`));
  return all.filter((state) => !seen.has(state));
}

function reaches(table: AnyTable, from: string, to: string): boolean {
  const reached = new Set([from]);
  for (const state of reached) for (const next of table[state] ?? []) reached.add(next);
  return reached.has(to);
}
