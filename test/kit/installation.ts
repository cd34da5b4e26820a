// Runs install.sh below a scratch root: systemd, users and waiting are scripted programs in front of PATH that record their arguments.
// Also a machine without Node and without this checkout, as a supplier's is: the same machine, with both hidden from one program.
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { capture, type Captured } from './capture.ts';

export interface Installation {
  /** The folder to which everything is written. */
  root: string;
  /** Put in front of PATH. */
  programs: string;
  env: Record<string, string>;
  /** Runs `install.sh` of an unpacked package. */
  run(packageFolder: string, argv: readonly string[], input?: string): Promise<Captured>;
  /** Replaces a scripted program. */
  script(name: string, ...lines: string[]): void;
  /** The command lines of the scripted programs since the last call. */
  recorded(): string[];
  /** What systemd says of a unit: `active`, or undefined. */
  setActive(unit: string): void;
}

/** A restart fails if the unit's version has a file `broken`; it is up from then on. */
const SYSTEMCTL = [
  'echo "systemctl $*" >>"$INSTALLATION/recorded"',
  'case $1 in',
  '  is-active) for unit; do :; done; cat "$INSTALLATION/$unit" 2>/dev/null || exit 3 ;;',
  '  restart)',
  '    echo active >"$INSTALLATION/$2"',
  '    [ ! -e "$INSTALLATION/root/opt/gpu-rental-service/$2/broken" ]',
  '    ;;',
  '  disable | stop) for unit; do :; done; rm -f "$INSTALLATION/$unit" ;;',
  '  show) echo 0 ;;',
  'esac',
];
const RECORD = 'echo "${0##*/} $*" >>"$INSTALLATION/recorded"';

/** `dir` is new. */
export function openInstallation(dir: string): Installation {
  const [root, programs] = [join(dir, 'root'), join(dir, 'programs')];
  mkdirSync(root, { recursive: true });
  mkdirSync(programs);
  const script = (name: string, ...lines: string[]): void => {
    writeFileSync(join(programs, name), `#!/bin/sh\n${lines.join('\n')}\n`);
    chmodSync(join(programs, name), 0o755);
  };
  script('systemctl', ...SYSTEMCTL);
  script('id', 'echo 0');
  script('getent', 'exit 2');
  const recorders = ['useradd', 'userdel', 'chown', 'sleep', 'sync', 'nvidia-container-runtime-hook'];
  for (const name of recorders) script(name, RECORD);
  const env = { INSTALLATION: dir, PATH: `${programs}:${process.env['PATH']}` };
  const recordFile = join(dir, 'recorded');
  return {
    root,
    programs,
    env,
    script,
    run: (packageFolder, argv, input) =>
      capture(['sh', join(packageFolder, 'install.sh'), ...argv, '--root', root], {
        env,
        ...(input === undefined ? {} : { input }),
      }),
    recorded: () => {
      const lines = existsSync(recordFile) ? readFileSync(recordFile, 'utf8').trim().split('\n') : [];
      writeFileSync(recordFile, '');
      return lines.filter((line) => line !== '');
    },
    setActive: (unit) => writeFileSync(join(dir, unit), 'active\n'),
  };
}

const CHECKOUT = resolve(import.meta.dirname, '../..');

/** Mounts of its own: an empty folder over the checkout, and nothing in the place of every Node. */
const HIDE = `
mount -t tmpfs tmpfs "$1"
shift
for folder in /usr/local/bin /usr/bin /bin; do
  for name in node nodejs npm npx; do
    if [ -e "$folder/$name" ]; then mount --bind /dev/null "$folder/$name"; fi
  done
done
exec "$@"
`;

/** The command line that runs a program there; `programs` is a folder in front of its PATH. Needs root. */
export function withoutNode(argv: readonly string[], programs?: string): string[] {
  const path = [...(programs === undefined ? [] : [programs]), '/usr/sbin', '/usr/bin', '/sbin', '/bin'].join(':');
  return ['unshare', '--mount', '--', 'env', `PATH=${path}`, 'sh', '-euc', HIDE, 'sh', CHECKOUT, ...argv];
}
