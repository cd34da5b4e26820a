// The database of a bench: a SQLite file or a PostgreSQL database, migrated, opened as the control plane opens it.
import { Client } from 'pg';
import type { Db } from '../../control-plane/base/db/db.ts';
import { takeLease } from '../../control-plane/base/db/lease.ts';
import { migrate, prepareDatabase } from '../../control-plane/base/db/migrate.ts';
import { openPostgres } from '../../control-plane/base/db/postgres.ts';
import { openSqlite } from '../../control-plane/base/db/sqlite.ts';
import { SCHEMA } from '../../control-plane/foundation.ts';
import { systemClock } from '../../shared/clock.ts';
import { createLog } from '../../shared/log.ts';
import { systemRng } from '../../shared/rng.ts';

/** On PostgreSQL it takes a lease of its own, because in production each transaction checks one. */
export async function openBenchDb(url: string): Promise<Db> {
  const clock = systemClock();
  if (!url.startsWith('postgres:')) return openSqlite(url, { clock });
  const postgres = openPostgres(url, { clock, log: createLog('bench', 'error'), rng: systemRng() });
  await prepareDatabase(postgres);
  const held = await takeLease(postgres, { name: `bench-${process.pid}`, holder: 'bench' }, undefined);
  if (held !== undefined) postgres.fence(held);
  return postgres;
}

/** The same with the tables of all rooms. */
export async function openMigrated(url: string): Promise<Db> {
  const db = await openBenchDb(url);
  await migrate(db, SCHEMA, { clock: systemClock() });
  return db;
}

/** Makes an empty database on the server. */
export async function createDatabase(serverUrl: string, name: string): Promise<string> {
  const client = new Client({ connectionString: serverUrl });
  await client.connect();
  await client.query(`create database ${name}`);
  await client.end();
  return withDatabase(serverUrl, name);
}

export function withDatabase(serverUrl: string, name: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url.toString();
}
