// When install.sh enables the unit: at a new installation and at an enrolment. Otherwise the unit stays as the operator has it.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Installation, openInstallation } from '../kit/installation.ts';
import { makeSmallPackage } from '../kit/small-package.ts';

let dir: string;
let host: Installation;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'enabled-'));
  host = openInstallation(dir);
});
afterEach(() => rmSync(dir, { recursive: true }));

const RECORD = 'echo "systemctl $*" >>"$INSTALLATION/recorded"';
const makePackage = (build: string, ...faults: string[]): string => makeSmallPackage(dir, build, faults);
/** The calls that have enabled the unit since the last look. */
const enabled = (): string[] => host.recorded().filter((line) => line.startsWith('systemctl enable'));

describe.skipIf(process.platform !== 'linux')('install.sh', () => {
  test('an upgrade leaves the unit enabled or disabled as the operator has it, an enrolment and a new installation enable it', async () => {
    await host.run(makePackage('1.0.0-a'), ['agent']);
    expect(enabled()).toEqual(['systemctl enable --quiet svc-agent']);
    await host.run(makePackage('1.1.0-b'), ['agent']);
    expect(enabled()).toEqual([]);
    await host.run(makePackage('1.1.0-b'), ['agent', '--url', 'https://api.example.com', '--token', 'secret']);
    expect(enabled()).toEqual(['systemctl enable --quiet svc-agent']);
    await host.run(makePackage('1.1.0-b'), ['remove', 'agent']);
    await host.run(makePackage('1.1.0-b'), ['agent']);
    expect(enabled()).toEqual(['systemctl enable --quiet svc-agent']);
  });

  test('a new installation that ended before its unit was enabled is continued by the next run', async () => {
    host.script('systemctl', RECORD, '[ "$1" != daemon-reload ]');
    expect((await host.run(makePackage('1.0.0-a'), ['agent'])).code).toBe(1);
    host.script('systemctl', RECORD, '[ "$1" != is-active ]');
    host.recorded();
    for (const enables of [1, 0]) {
      expect((await host.run(makePackage('1.0.0-a'), ['agent'])).code).toBe(0);
      expect(enabled()).toHaveLength(enables);
    }
  });

  test('a removal that is refused leaves the unit enabled or disabled as it was', async () => {
    const folder = makePackage('1.0.0-a', 'rented');
    await host.run(folder, ['agent']);
    enabled();
    expect((await host.run(folder, ['remove', 'agent'])).code).toBe(1);
    expect(enabled()).toEqual(['systemctl enable --quiet svc-agent']);
    host.script('systemctl', RECORD, '[ "$1" != is-active ] && [ "$1" != is-enabled ]');
    expect((await host.run(folder, ['remove', 'agent'])).code).toBe(1);
    await host.run(makePackage('1.1.0-b', 'rented'), ['agent']);
    expect(enabled()).toEqual([]);
  });

  test('a removal that was killed after it has disabled its unit can be taken back by an installation', async () => {
    const folder = makePackage('1.0.0-a');
    await host.run(folder, ['agent']);
    host.script('systemctl', RECORD, 'case $1 in is-active) exit 3 ;; disable) kill -KILL $PPID ;; esac');
    expect((await host.run(folder, ['remove', 'agent'])).code).not.toBe(0);
    host.script('systemctl', RECORD, '[ "$1" != is-active ]');
    host.recorded();
    expect((await host.run(makePackage('1.1.0-b'), ['agent'])).code).toBe(0);
    expect(host.recorded()).toContain('systemctl enable --quiet svc-agent');
  });
});
