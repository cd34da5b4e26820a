// Copies of a database in memory: what a backup holds, and a database that is restored from one.
import { z } from 'zod';
import { text } from '../../control-plane/base/db/columns.ts';
import { type Db, join, raw, sql } from '../../control-plane/base/db/db.ts';
import { SCHEMA } from '../../control-plane/foundation.ts';
import type { Clock } from '../../shared/clock.ts';
import { openTestDb } from '../kit/databases.ts';

type Row = Record<string, unknown>;
export interface Backup {
  /** The key is the name of the table. */
  rows: Map<string, Row[]>;
  /** The time at which the control plane last worked before the backup. */
  atMs: number;
}

const NameRow = z.object({ name: text });
const AnyRow = z.record(z.string(), z.unknown());

export async function backUp(db: Db, upUntilMs: () => number): Promise<Backup> {
  return db.tx('backup', async (tx) => {
    const tables = await tx.all(
      NameRow,
      sql`select name from sqlite_schema where type = 'table' and name not like 'sqlite_%' and name <> 'schema_migrations'`,
    );
    const backup: Backup = { rows: new Map(), atMs: upUntilMs() };
    for (const { name } of tables) backup.rows.set(name, await tx.all(AnyRow, sql`select * from ${raw(name)}`));
    return backup;
  });
}

/** A new database with what the backup holds. */
export async function restore(backup: Backup, clock: Clock): Promise<Db> {
  const db = await openTestDb(SCHEMA, clock);
  await db.tx('restore', async (tx) => {
    await tx.run(sql`pragma defer_foreign_keys = on`);
    for (const [table, rows] of backup.rows) {
      for (const row of rows) {
        const columns = raw(Object.keys(row).join(', '));
        await tx.run(sql`insert into ${raw(table)} (${columns}) values (${join(Object.values(row))})`);
      }
    }
  });
  return db;
}
