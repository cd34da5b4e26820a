// Runs a program as systemd would run it by one of our units, with the unit's filters and limits, on a machine where systemd may not run.
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { requireProgram } from './setup.ts';

const UNITS = resolve(import.meta.dirname, '../../systemd');

/**
 * A manager for this one unit. systemd refuses to run where `/run/systemd/system` is missing, so the manager sees one of its own. It moves
 * all processes of its cgroup into another one, so it gets a cgroup of its own. The unit's output goes through a file, because a manager
 * passes its own output on to nobody. Arguments: the manager's folder, its program, the unit, the folder of our units.
 */
const MANAGE = `
set -e
if ! [ -d /run/systemd/system ]; then
  mkdir -p /run/systemd
  mount -t tmpfs none /run/systemd
  mkdir /run/systemd/system
fi
while IFS=: read -r number names path; do
  case $names in
    '') tree=/sys/fs/cgroup/unified; [ -d $tree ] || tree=/sys/fs/cgroup; need=must ;;
    name=systemd) tree=/sys/fs/cgroup/systemd; need=must ;;
    *) tree=/sys/fs/cgroup/$names; need=may ;;
  esac
  own="$tree$path/svc-unit-$$"
  if ! { mkdir "$own" && echo $$ > "$own/cgroup.procs"; } 2> /dev/null && [ $need = must ]; then
    echo "cannot make the cgroup $own: without it, systemd would move the processes of this machine" >&2
    exit 1
  fi
done < /proc/self/cgroup
touch "$1/output"
tail -n +1 -s 0.1 -f --pid=$$ "$1/output" &
export HOME="$1" XDG_RUNTIME_DIR="$1/run" XDG_CONFIG_HOME="$1/config" SYSTEMD_UNIT_PATH="$1/units:$4:"
exec "$2" --user --unit="$3" --log-target=console
`;

/**
 * The command line that runs `argv` in place of the program of `unit`, which a SIGTERM stops. The manager's files are made below
 * `parent`. Needs root.
 */
export function underUnit(unit: string, parent: string, argv: readonly string[]): string[] {
  const dir = mkdtempSync(join(parent, 'unit-'));
  const changes = join(dir, 'units', `${unit}.d`);
  for (const folder of [changes, join(dir, 'run')]) mkdirSync(folder, { recursive: true });
  // A percent sign and a dollar sign mean something to systemd.
  const words = argv.map((word) => JSON.stringify(word).replaceAll('%', '%%').replaceAll('$', '$$$$'));
  writeFileSync(
    join(changes, 'test.conf'),
    `[Unit]
SuccessAction=exit
FailureAction=exit
[Service]
ExecStart=
ExecStart=${words.join(' ')}
Restart=no
StandardOutput=append:${dir}/output
StandardError=inherit
`,
  );
  const manager = requireProgram('systemd');
  return ['unshare', '--mount', '/bin/sh', '-c', MANAGE, 'manage', dir, manager, unit, UNITS];
}
