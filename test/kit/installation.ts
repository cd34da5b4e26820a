// Runs install.sh below a scratch root: systemd, users and waiting are scripted programs in front of PATH that write down what they are told.
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { capture, type Captured } from './capture.ts';

export interface Installation {
  /** Where everything is written to. */
  root: string;
  /** Put in front of PATH. */
  programs: string;
  env: Record<string, string>;
  /** Runs `install.sh` of an unpacked package. */
  run(packageFolder: string, argv: readonly string[], input?: string): Promise<Captured>;
  /** Replaces a scripted program. */
  script(name: string, ...lines: string[]): void;
  /** Each line is what a scripted program was told, since it was last asked. */
  told(): string[];
  /** What systemd says of a unit: `active`, or undefined. */
  setActive(unit: string): void;
}

/** A restart fails if the unit's version has a file `broken`; it is up from then on. */
const SYSTEMCTL = [
  'echo "systemctl $*" >>"$INSTALLATION/told"',
  'case $1 in',
  '  is-active) cat "$INSTALLATION/$2" 2>/dev/null || exit 3 ;;',
  '  restart)',
  '    echo active >"$INSTALLATION/$2"',
  '    [ ! -e "$INSTALLATION/root/opt/gpu-rental-service/$2/broken" ]',
  '    ;;',
  '  disable) rm -f "$INSTALLATION/$4" ;;',
  '  show) echo 0 ;;',
  'esac',
];
const TELL = 'echo "${0##*/} $*" >>"$INSTALLATION/told"';

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
  for (const name of ['useradd', 'userdel', 'chown', 'sleep', 'nvidia-container-runtime-hook']) script(name, TELL);
  const env = { INSTALLATION: dir, PATH: `${programs}:${process.env['PATH']}` };
  const toldFile = join(dir, 'told');
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
    told: () => {
      const lines = existsSync(toldFile) ? readFileSync(toldFile, 'utf8').trim().split('\n') : [];
      writeFileSync(toldFile, '');
      return lines.filter((line) => line !== '');
    },
    setActive: (unit) => writeFileSync(join(dir, unit), 'active\n'),
  };
}
