// Commands of the operator's page on where the data is, its backup and its restore: why the test of the manual cannot run them in place.
import type { NotRun } from './not-run.ts';

const RESTORE_TEST = 'test/e2e/restore.test.ts';
const BACKUP_TEST = 'test/control-plane/backup.test.ts';
const DIRECTORIES_TEST = 'test/control-plane/config-files.test.ts';
const POSTGRES_TEST = 'test/control-plane/restore.pg.test.ts';
const MOVE_REASON = 'the test of the manual stands on SQLite, and the other pages need its daemon';

export const DATA_NOT_RUN: readonly NotRun[] = [
  {
    command: 'svc-control-plane restore /var/backups/control-plane.db --force',
    reason: 'the daemon must be stopped, and the other pages need it',
    provenBy: [RESTORE_TEST, 'from before the last launches is restored: adopt first'],
  },
  ...[
    'svc-control-plane admin backup /var/backups/before-the-move.db',
    'svc-control-plane restore /var/backups/before-the-move.db',
  ].map((command): NotRun => ({ command, reason: MOVE_REASON, provenBy: [RESTORE_TEST, 'moves to PostgreSQL'] })),
  needsUser('mkdir --parents --mode=0700 /data/svc', DIRECTORIES_TEST, 'a directory that is read-only'),
  needsUser('chown svc-control-plane: /data/svc', DIRECTORIES_TEST, 'a directory that is read-only'),
  ...[
    'mkdir --mode=0700 /var/lib/svc-control-plane',
    'cp /var/backups/secret /var/lib/svc-control-plane/secret',
    'chown --recursive svc-control-plane: /var/lib/svc-control-plane',
  ].map((command) => needsUser(command, BACKUP_TEST, 'needs no --force on a new machine')),
  onPostgres(
    '(umask 077; pg_dump --format=custom --file=/var/backups/control-plane.dump postgres://svc@db.internal/svc)',
  ),
  onPostgres('createdb --maintenance-db=postgres://svc@db.internal/postgres svc_restored'),
  onPostgres(
    'pg_restore --single-transaction --dbname=postgres://svc@db.internal/svc_restored /var/backups/control-plane.dump',
  ),
  onPostgres("psql --dbname=postgres://svc@db.internal/svc_restored --command='delete from sessions'"),
  onPostgres(
    "psql --dbname=postgres://svc@db.internal/postgres --single-transaction \\\n  --command='alter database svc rename to svc_before_restore' --command='alter database svc_restored rename to svc'",
  ),
  onPostgres('dropdb --maintenance-db=postgres://svc@db.internal/postgres --if-exists svc_restored'),
  onPostgres('dropdb --maintenance-db=postgres://svc@db.internal/postgres --if-exists svc_before_restore'),
];

/** The test of the restore runs these commands as they are in the manual. */
function onPostgres(command: string): NotRun {
  return {
    command,
    reason: 'the test of the manual stands on SQLite',
    provenBy: [POSTGRES_TEST, 'the manual restores a dump'],
  };
}

function needsUser(command: string, file: string, title: string): NotRun {
  return { command, reason: 'it needs the user that an installation makes', provenBy: [file, title] };
}
