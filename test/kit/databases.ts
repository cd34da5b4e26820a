// Opens the database that a store test runs on: SQLite in memory, or a fresh PostgreSQL database where the lane provides a server.
import { Client } from 'pg';
import { inject } from 'vitest';
import { openPostgres } from '../../control-plane/base/db/postgres.ts';
import { type Db } from '../../control-plane/base/db/db.ts';
import { migrate, type RoomMigrations } from '../../control-plane/base/db/migrate.ts';
import { openSqlite } from '../../control-plane/base/db/sqlite.ts';
import { type Clock, systemClock } from '../../shared/clock.ts';
import { createLog } from '../../shared/log.ts';
import { systemRng } from '../../shared/rng.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Administrator URL of the lane's PostgreSQL server; absent in the SQLite lanes. */
    postgresUrl: string | undefined;
  }
}

/** A migrated, empty database. Closing it drops it. */
export async function openTestDb(rooms: RoomMigrations[], clock: Clock = systemClock()): Promise<Db> {
  const serverUrl = inject('postgresUrl');
  const db = serverUrl === undefined ? openSqlite(':memory:', { clock }) : await freshPostgres(serverUrl);
  await migrate(db, rooms, { clock });
  return db;
}

/** Its retries wait on real time, whatever clock the rooms have. */
async function freshPostgres(serverUrl: string): Promise<Db> {
  const clock = systemClock();
  const rng = systemRng();
  const name = `test_${Buffer.from(rng.bytes(8)).toString('hex')}`;
  await asAdministrator(serverUrl, `create database ${name}`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  const db = openPostgres(url.toString(), { clock, rng, log: createLog('test', 'silent') });
  return {
    ...db,
    close: async () => {
      await db.close();
      await asAdministrator(serverUrl, `drop database ${name} with (force)`);
    },
  };
}

async function asAdministrator(serverUrl: string, statement: string): Promise<void> {
  const client = new Client({ connectionString: serverUrl });
  await client.connect();
  await client.query(statement);
  await client.end();
}
