// The SQL of probe series.
import { z } from 'zod';
import { int, text } from '../../base/db/columns.ts';
import { type Query, type Tx, sql } from '../../base/db/db.ts';

const ProbeRow = z.object({
  instance_id: text,
  next_ms: int,
  first_failure_ms: int.nullable(),
  failures: int,
  successes: int,
  last_leg: text.nullable(),
  last_detail: text.nullable(),
});
export type ProbeRow = z.infer<typeof ProbeRow>;

const COLUMNS = sql`instance_id, next_ms, first_failure_ms, failures, successes, last_leg, last_detail`;

export function allProbes(query: Query): Promise<ProbeRow[]> {
  return query.all(ProbeRow, sql`select ${COLUMNS} from probes order by next_ms`);
}

export async function writeProbe(tx: Tx, row: ProbeRow): Promise<void> {
  await tx.run(
    sql`insert into probes (${COLUMNS})
        values (${row.instance_id}, ${row.next_ms}, ${row.first_failure_ms}, ${row.failures}, ${row.successes}, ${row.last_leg}, ${row.last_detail})
        on conflict (instance_id) do update set next_ms = excluded.next_ms, first_failure_ms = excluded.first_failure_ms,
          failures = excluded.failures, successes = excluded.successes, last_leg = excluded.last_leg, last_detail = excluded.last_detail`,
  );
}

export async function forgetProbe(tx: Tx, instanceId: string): Promise<void> {
  await tx.run(sql`delete from probes where instance_id = ${instanceId}`);
}
