// A database from before outages were kept: its uncharged times become outages when it is migrated.
import { copyFileSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Db, sql } from '../../../control-plane/base/db/db.ts';
import { migrate } from '../../../control-plane/base/db/migrate.ts';
import { openSqlite } from '../../../control-plane/base/db/sqlite.ts';
import { pageOfOutages, sumsOfOutages } from '../../../control-plane/money/credits/outages.ts';
import { systemClock } from '../../../shared/clock.ts';

const SOURCE = join(import.meta.dirname, '../../../control-plane/money/credits/migrations');
const clock = systemClock();

let directory: string;
let db: Db;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'credits-'));
  db = openSqlite(':memory:', { clock });
});
afterEach(async () => {
  await db.close();
  rmSync(directory, { recursive: true });
});

/** Applies the files whose name is below `end`. */
async function migrateUntil(end: string): Promise<void> {
  for (const name of readdirSync(SOURCE).filter((each) => each < end))
    copyFileSync(join(SOURCE, name), join(directory, name));
  await migrate(db, [{ room: 'money/credits', directory: pathToFileURL(`${directory}/`) }], { clock });
}

test('each time of a machine is an outage, and times of our own outage are one', async () => {
  await migrateUntil('0004');
  const time = (id: string, cause: string, [machine, fromMs, evidence]: readonly [string, number, string]) =>
    db.tx('test.time', (tx) =>
      tx.run(sql`insert into free_times (id, subject_id, org_id, supplier_id, machine_id, cause, rate_ucents_per_hour, supplier_bps, from_ms,
                   counted_ms, counted_at_ms, evidence)
                 values (${id}, ${`i-${id}`}, 'o', 's', ${machine}, ${cause}, 1, 0, ${fromMs}, 0, 0, ${evidence})`),
    );
  await time('a', 'outage', ['m1', 10, 'probes']);
  await time('b', 'outage', ['m1', 20, 'probes']);
  await time('c', 'own_outage', ['m1', 31, 'we were away']);
  await time('d', 'own_outage', ['m2', 30, 'we were away']);
  await migrateUntil('0005');
  const rows = await pageOfOutages(db.read, { machineId: undefined, isOpen: true }, { count: 10 });
  expect(rows.map(({ id, cause, machine_id: machineId, opened_ms: atMs }) => [id, cause, machineId, atMs])).toEqual([
    ['out_c', 'own_outage', null, 30],
    ['out_b', 'outage', 'm1', 20],
    ['out_a', 'outage', 'm1', 10],
  ]);
  const sums = await sumsOfOutages(
    db.read,
    rows.map(({ id }) => id),
  );
  expect(
    [...sums].map(([id, { rentals }]) => [id, rentals]).toSorted(([a], [b]) => String(a).localeCompare(String(b))),
  ).toEqual([
    ['out_a', 1],
    ['out_b', 1],
    ['out_c', 2],
  ]);
});
