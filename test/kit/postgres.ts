// A private PostgreSQL server for tests: own folder, port and socket, gone afterwards. It does not flush to the disk unless it is asked to.
import { chownSync, existsSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { freePort } from './ports.ts';
import { eventually, type Program, runProgram, startProgram } from './processes.ts';
import { requireProgram } from './setup.ts';

export interface PostgresServer {
  /** Administrator URL of the database `postgres`. */
  url: string;
  /** Kills it as `kill -9` does, and starts it again on what it has left on the disk. */
  crash(): Promise<void>;
  stop(): Promise<void>;
}

/** PostgreSQL refuses to run as root: then it runs as the system user that its package makes. */
export async function startPostgres({ durable = false } = {}): Promise<PostgresServer> {
  const folder = dirname(realpathSync(requireProgram('initdb')));
  const bin = (name: string): string => join(folder, name);
  const user = process.getuid?.() === 0 ? postgresUser() : undefined;
  const dir = mkdtempSync(join(tmpdir(), 'postgres-'));
  if (user !== undefined) chownSync(dir, user.uid, user.gid);
  const as = { cwd: dir, ...(user === undefined ? {} : { user }) };
  const data = join(dir, 'data');
  const init = ['-D', data, '-U', 'postgres', '--auth=trust', '--encoding=UTF8', '--locale=C.UTF-8', '--no-sync'];
  await runProgram({ command: bin('initdb'), args: init, ...as });

  const port = await freePort();
  const settings = { port, unix_socket_directories: dir, listen_addresses: '127.0.0.1', max_connections: 400 };
  const fast = durable ? {} : { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' };
  const options = Object.entries({ ...settings, ...fast }).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const start = async (): Promise<Program> => {
    const started = startProgram({ command: bin('postgres'), args: ['-D', data, ...options], ...as });
    await started.waitForOutput(/database system is ready to accept connections/, 30_000);
    return started;
  };
  let server = await start();
  return {
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    crash: async () => {
      await server.stop('SIGKILL');
      // It refuses to start until the last of its old processes has noticed.
      server = await eventually('PostgreSQL after a crash', 30_000, () => start().catch(() => undefined));
    },
    stop: async () => {
      // SIGINT is "fast shutdown": sessions are cut, nothing is waited for.
      await server.stop('SIGINT');
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Gives the postgres lane its server. A test takes the URL with inject('postgresUrl'). */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startPostgres();
  project.provide('postgresUrl', server.url);
  return () => server.stop();
}

function postgresUser(): { uid: number; gid: number } {
  const line = existsSync('/etc/passwd')
    ? /^postgres:[^:]*:(\d+):(\d+):/m.exec(readFileSync('/etc/passwd', 'utf8'))
    : null;
  if (line === null) throw new Error('PostgreSQL cannot run as root and there is no user postgres');
  return { uid: Number(line[1]), gid: Number(line[2]) };
}
