// The commands with which the manual backs up and restores a database on PostgreSQL, for a server of the test's own.
import { commandsOf, pageOf, readPages } from './documents.ts';

export interface PostgresCommands {
  backup: string;
  /** The commands in their order. The last one gives the restored database the name of the one before it. */
  restore: string[];
}

/** `url` is that of the database `postgres`. The database of the service is `svc` there, as in the manual. */
export function postgresCommands({ url, file }: { url: string; file: string }): PostgresCommands {
  const server = url.replace(/\/postgres$/, '/');
  const commands = commandsOf(pageOf(readPages(), 'control-plane/docs/operator.md')).map(({ text }) =>
    text.replaceAll('postgres://svc@db.internal/', server).replaceAll('/var/backups/control-plane.dump', file),
  );
  const startingWith = (...programs: string[]): string[] =>
    commands.filter((text) => programs.includes(text.split(' ', 1)[0] ?? ''));
  const backup = commands.filter((text) => text.startsWith('(umask 077; pg_dump ')).join('\n');
  return { backup, restore: startingWith('createdb', 'pg_restore', 'psql') };
}
