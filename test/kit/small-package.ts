// A small package for tests of install.sh: the script, the units and the configurations, and a program in the place of ours.
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const CHECKOUT = resolve(import.meta.dirname, '../..');

/** Writes down how it was called; its agent is up, fit and without rentals unless files of the package say otherwise. */
export const PROGRAM = `#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
echo "\${0##*/} $*" >>"$INSTALLATION/recorded"
case $1 in
  enroll) sed 's/^/read /' >>"$INSTALLATION/recorded" ;;
  status) [ -e "$here/../silent" ] || echo 'agent: 1.0.0'; exit 1 ;;
  check) [ ! -e "$here/../unfit" ] || { echo 'it has no GPU and no nft' >&2; exit 1; } ;;
  clear) [ ! -e "$here/../rented" ] || [ "$4" = --force ] ;;
esac
`;

/**
 * Unpacks a package of a few files below `dir`, and returns its folder. `faults` are names of files that PROGRAM and the scripted systemctl look for.
 */
export function makeSmallPackage(dir: string, build: string, faults: readonly string[] = []): string {
  const folder = join(dir, 'packages', build);
  for (const part of ['bin', 'etc']) mkdirSync(join(folder, part), { recursive: true });
  cpSync(join(CHECKOUT, 'installer/install.sh'), join(folder, 'install.sh'));
  cpSync(join(CHECKOUT, 'systemd'), join(folder, 'systemd'), { recursive: true });
  for (const name of ['agent', 'control-plane']) {
    cpSync(join(CHECKOUT, `installer/${name}.yaml`), join(folder, `etc/${name}.yaml`));
    writeFileSync(join(folder, `bin/svc-${name}`), PROGRAM, { mode: 0o755 });
  }
  writeFileSync(join(folder, 'bin/node'), PROGRAM, { mode: 0o755 });
  for (const name of ['BUILD', ...faults]) writeFileSync(join(folder, name), `${build}\n`);
  return folder;
}
