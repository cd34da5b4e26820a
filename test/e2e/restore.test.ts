// A restore from an old backup: instances in the backup go on, unknown containers are left alone and reported.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { Balance, UsageRow } from '../../shared/api/billing.ts';
import { Instance } from '../../shared/api/instance.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { terminate } from '../kit/api-client.ts';
import { type PostgresCommands, postgresCommands } from '../kit/manual/postgres-commands.ts';
import { type PostgresServer, startPostgres } from '../kit/postgres.ts';
import { eventually, runProgram } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { openSshClient } from '../kit/ssh-client.ts';
import { verifyLedger, waitForOffering } from '../kit/stack.ts';

const Restored = z.object({ kept_aside: z.string().regex(/before-restore/) });
const Machines = z.object({
  data: z.array(z.looseObject({ machine_id: z.string(), unknown_workloads: z.string() })),
});

interface Drilled {
  /** Undefined: the embedded SQLite. */
  postgres: PostgresServer | undefined;
  backup(file: string): Promise<unknown>;
  /** While the control plane is stopped. */
  restore(file: string): Promise<unknown>;
}

let stack: RentalStack;

const DATABASES = ['SQLite', 'PostgreSQL', 'SQLite that moves to PostgreSQL'] as const;

/** What the manual says, without its host. */
const PG_RESTORE = ['--single-transaction'];

async function open(database: (typeof DATABASES)[number]): Promise<Drilled> {
  const postgres = database === 'SQLite' ? undefined : await startPostgres();
  if (postgres !== undefined)
    await runProgram({ command: 'createdb', args: [`--maintenance-db=${postgres.url}`, 'svc'] });
  const ownUrl = postgres?.url.replace(/postgres$/, 'svc');
  stack = await openRentalStack(database === 'PostgreSQL' && ownUrl !== undefined ? { postgresUrl: ownUrl } : {});
  const { operator, configPath } = stack.controlPlane;
  const backup = (file: string): Promise<unknown> => operator('admin', 'backup', file);
  if (postgres === undefined)
    return { postgres, backup, restore: async (file) => Restored.parse(await operator('restore', file, '--force')) };
  if (database !== 'PostgreSQL')
    return {
      postgres,
      backup,
      restore: async (file) => {
        const config: unknown = JSON.parse(readFileSync(configPath, 'utf8'));
        writeFileSync(configPath, JSON.stringify({ ...Object(config), database: { postgres: ownUrl } }));
        await operator('restore', file);
      },
    };
  const manualOf = (file: string): PostgresCommands => postgresCommands({ url: postgres.url, file });
  const shell = (command: string): Promise<string> => runProgram({ command: 'sh', args: ['-ec', command] });
  return {
    postgres,
    backup: (file) => shell(manualOf(file).backup),
    restore: (file) => shell(manualOf(file).restore.join('\n')),
  };
}

async function containerOf({ id }: Instance): Promise<{ id: string; workloadId: string; startedAt: string }> {
  const filters = { label: [`svc.instance_id=${id}`] };
  const [one] = await stack.engine.docker.listContainers({ all: true, filters });
  const { Id, Config, State } = await stack.engine.docker.getContainer(one?.Id ?? '').inspect();
  expect(State.Running).toBe(true);
  return { id: Id, workloadId: Config.Labels['svc.workload_id'] ?? '', startedAt: State.StartedAt };
}

async function machine(): Promise<{ machine_id: string; unknown_workloads: string }> {
  const { data } = Machines.parse(await stack.controlPlane.operator('admin', 'machine', 'list'));
  return data[0] ?? { machine_id: '', unknown_workloads: '' };
}

const costOf = async (id: string): Promise<number> => {
  const { data } = await stack.customer.api.get('/usage?bucket=month', pageSchema(UsageRow));
  return Number(data.find((row) => row.instance_id === id)?.cost ?? 0);
};

test('a dump that breaks off leaves no table on PostgreSQL, so no daemon starts with half of its rows', async () => {
  expect(readFileSync('control-plane/docs/operator.md', 'utf8')).toContain(
    `pg_restore ${PG_RESTORE.join(' ')} --dbname`,
  );
  const { url, stop } = await startPostgres();
  const dir = mkdtempSync(join(tmpdir(), 'half-dump-'));
  try {
    const made =
      'create table a as select generate_series(1, 10) n; create table b as select md5(n::text) from generate_series(1, 50000) n';
    await runProgram({ command: 'psql', args: [`--dbname=${url}`, `--command=${made}`] });
    const dump = join(dir, 'whole');
    await runProgram({ command: 'pg_dump', args: [`--dbname=${url}`, '--format=custom', `--file=${dump}`] });
    const bytes = readFileSync(dump);
    writeFileSync(join(dir, 'half'), bytes.subarray(0, bytes.length * 0.9));
    await runProgram({ command: 'psql', args: [`--dbname=${url}`, '--command=drop table a, b'] });
    const restored = runProgram({ command: 'pg_restore', args: [`--dbname=${url}`, ...PG_RESTORE, join(dir, 'half')] });
    await expect(restored).rejects.toThrow('end of file');
    const tables = "select count(*) from pg_tables where schemaname = 'public'";
    const args = ['--tuples-only', `--dbname=${url}`, `--command=${tables}`];
    expect((await runProgram({ command: 'psql', args })).trim()).toBe('0');
  } finally {
    await stop();
    rmSync(dir, { recursive: true });
  }
});

test.each(DATABASES)('a backup of %s from before the last launches is restored: adopt first', async (database) => {
  const { postgres, ...drilled } = await open(database);
  try {
    await drill(drilled);
  } finally {
    const wrong = await stack.end();
    await postgres?.stop();
    expect(wrong).toEqual([]);
  }
});

async function drill({ backup: makeBackup, restore }: Omit<Drilled, 'postgres'>): Promise<void> {
  const { controlPlane, customer } = stack;
  const backup = join(stack.dir, 'backup.db');
  const known = await stack.rent();
  const doomed = await stack.rent();
  await makeBackup(backup);
  const unknown = await stack.rent();
  await terminate(customer.api, doomed.id);
  const before = { known: await containerOf(known), unknown: await containerOf(unknown) };
  const session = stack.ssh(unknown).start('cat');

  await controlPlane.daemon.stop();
  await session.exited;
  await restore(backup);
  await controlPlane.daemon.start();

  // What the backup knows goes on, with its SSH and its bill.
  await eventually('served connection', 60_000, async () =>
    (await stack.ssh(known).run('true')).code === 0 ? true : undefined,
  );
  expect(await containerOf(known)).toEqual(before.known);
  expect(await customer.api.get(`/instances/${known.id}`, Instance)).toMatchObject({ status: 'running' });
  const cost = await costOf(known.id);
  await eventually('growing bill', 60_000, async () => ((await costOf(known.id)) > cost ? true : undefined));

  // What it does not know runs on untouched, is reported, and keeps new work away from its GPUs.
  const { machine_id: machineId } = await machine();
  const listed = await eventually('report of the unknown container', 30_000, async () =>
    (await machine()).unknown_workloads === before.unknown.workloadId ? await machine() : undefined,
  );
  expect(listed.unknown_workloads).toBe(before.unknown.workloadId);
  expect(await containerOf(unknown)).toEqual(before.unknown);
  await expect(customer.api.get(`/instances/${unknown.id}`, Instance)).rejects.toThrow('404');
  const { data: pricing } = await customer.api.get('/pricing', z.object({ data: z.array(z.unknown()) }));
  expect(pricing).toEqual([]);
  const log = readFileSync(controlPlane.daemon.logPath, 'utf8');
  expect(log).toContain('it was restored from a backup');
  expect(log).toContain('runs containers that this database does not know');

  // What has ended since the backup is not brought back: the rental ends again.
  await eventually('end of the rental that is over', 60_000, async () => {
    const { status } = await customer.api.get(`/instances/${doomed.id}`, Instance);
    return status === 'stopped' ? true : undefined;
  });
  await verifyLedger(controlPlane);

  // The operator decides about the unknown one; then the machine is on offer again.
  await controlPlane.operator('admin', 'machine', 'remove-unknown', machineId, before.unknown.workloadId);
  await eventually('end of the unknown container', 60_000, async () => {
    const { State } = await stack.engine.docker.getContainer(before.unknown.id).inspect();
    return State.Running ? undefined : true;
  });
  await waitForOffering(controlPlane);
  const next = await stack.rent();
  expect(await openSshClient(next, customer.identity).run('true')).toMatchObject({ code: 0 });
  expect(await containerOf(known)).toEqual(before.known);
  expect((await customer.api.get('/balance', Balance)).held_cents).toBeGreaterThan(0);
}
