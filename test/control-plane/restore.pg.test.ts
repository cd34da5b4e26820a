// The commands of the manual that back up and restore a database on PostgreSQL.
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type Foundation, openFoundation } from '../../control-plane/foundation.ts';
import { systemClock } from '../../shared/clock.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { systemRng } from '../../shared/rng.ts';
import { postgresCommands } from '../kit/manual/postgres-commands.ts';
import { startPostgres } from '../kit/postgres.ts';
import { runProgram } from '../kit/processes.ts';

test('the manual restores a dump; a daemon that is started too early finds the database whole, and nothing changes while it runs', async () => {
  const server = await startPostgres();
  const dir = mkdtempSync(join(tmpdir(), 'restore-'));
  onTestFinished(async () => {
    rmSync(dir, { recursive: true });
    await server.stop();
  });
  const urlOf = (database: string): string => server.url.replace(/postgres$/, database);
  const shell = (command = ''): Promise<string> => runProgram({ command: 'sh', args: ['-ec', command] });
  const ask = async (database: string, statement: string): Promise<string[]> =>
    (await shell(`psql --tuples-only --no-align --dbname=${urlOf(database)} --command="${statement}"`)).split('\n');
  const addOrg = (id: string): Promise<string[]> =>
    ask('svc', `insert into orgs (id, name, created_ms) values ('${id}', 'org', 0)`);
  const orgsIn = async (database: string): Promise<string[]> =>
    (await ask(database, 'select id from orgs order by id')).filter((id) => id !== '');
  const start = (): Promise<Foundation> => {
    const [clock, rng] = [systemClock(), systemRng()];
    const deps = { clock, rng, ids: createIds(clock, rng), log: createLog('test', 'silent') };
    return openFoundation({ postgres: urlOf('svc') }, deps);
  };
  const manual = postgresCommands({ url: server.url, file: join(dir, 'dump') });
  const [make, ...others] = manual.restore;
  const changePlaces = others.pop();

  await shell(`createdb --maintenance-db=${server.url} svc`);
  const daemon = await start();
  await addOrg('in-the-dump');
  await shell(manual.backup);
  // A backup holds customers' data, and the usual umask would let everybody read it.
  expect(statSync(join(dir, 'dump')).mode & 0o777).toBe(0o600);
  await addOrg('later');
  await daemon.close();

  await shell(make);
  const early = await start();
  for (const command of others) await shell(command);
  expect(await orgsIn('svc')).toEqual(['in-the-dump', 'later']);
  await expect(shell(changePlaces)).rejects.toThrow('is being accessed by other users');
  expect(await orgsIn('svc')).toEqual(['in-the-dump', 'later']);
  await early.close();
  await shell(changePlaces);
  expect(await orgsIn('svc')).toEqual(['in-the-dump']);
  expect(await orgsIn('svc_before_restore')).toEqual(['in-the-dump', 'later']);
});
