// install.sh with small packages: the files it writes, the programs it calls, and its behaviour if a version does not start.
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { capture } from '../kit/capture.ts';
import { type Installation, openInstallation } from '../kit/installation.ts';
import { makeSmallPackage, PROGRAM } from '../kit/small-package.ts';

let dir: string;
let host: Installation;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'install-'));
  host = openInstallation(dir);
});
afterEach(() => rmSync(dir, { recursive: true }));

const makePackage = (build: string, ...faults: string[]): string => makeSmallPackage(dir, build, faults);
const inRoot = (path: string): string => join(host.root, path);
const current = (unit: string): string => readlinkSync(inRoot(`opt/gpu-rental-service/${unit}`));
const versions = (): string[] => readdirSync(inRoot('opt/gpu-rental-service/versions')).toSorted();
const modeOf = (path: string): number => statSync(inRoot(path)).mode & 0o777;
const restarts = (): string[] => host.recorded().filter((line) => line.startsWith('systemctl restart'));

describe.skipIf(process.platform !== 'linux')('install.sh', () => {
  test('brings the control plane its user, unit and configuration, and does not start it before it is configured', async () => {
    const folder = makePackage('1.0.0-a');
    chmodSync(join(folder, 'BUILD'), 0o600);
    const { code, stdout, stderr } = await host.run(folder, ['control-plane', '--prefix', '/srv/gpu']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout.toString()).toContain('write down base_url');
    expect(readlinkSync(inRoot('srv/gpu/svc-control-plane'))).toBe('versions/1.0.0-a');
    expect(readlinkSync(inRoot('usr/local/bin/svc-control-plane'))).toBe(
      '/srv/gpu/svc-control-plane/bin/svc-control-plane',
    );
    const unit = readFileSync(inRoot('etc/systemd/system/svc-control-plane.service'), 'utf8');
    expect(unit).toContain('ExecStart=/srv/gpu/svc-control-plane/bin/svc-control-plane serve');
    expect(unit).not.toContain('/opt/');
    expect(modeOf('srv/gpu/versions/1.0.0-a/BUILD')).toBe(0o644);
    expect(modeOf('etc/svc-control-plane/control-plane.yaml')).toBe(0o640);
    const recorded = host.recorded();
    expect(recorded.filter((line) => /^(useradd|chown) /.test(line))).toEqual([
      'useradd --system --user-group --home-dir /var/lib/svc-control-plane --shell /usr/sbin/nologin svc-control-plane',
      `chown root:svc-control-plane ${inRoot('etc/svc-control-plane/control-plane.yaml.new')}`,
    ]);
    expect(recorded).toContain('systemctl enable --quiet svc-control-plane');
    expect(recorded.join('\n')).not.toContain('restart');
  });

  test('a run that ends before the configuration has its owner leaves none, so that the next run makes it', async () => {
    const folder = makePackage('1.0.0-a');
    host.script('chown', 'exit 1');
    expect(await host.run(folder, ['control-plane'])).toMatchObject({ code: 1 });
    expect(existsSync(inRoot('etc/svc-control-plane/control-plane.yaml'))).toBe(false);
    host.script('chown');
    expect(await host.run(folder, ['control-plane'])).toMatchObject({ code: 0 });
    expect(readdirSync(inRoot('etc/svc-control-plane'))).toEqual(['control-plane.yaml']);
  });

  test('enrols an agent without a word of its token in any argument, and waits until it is up', async () => {
    const { code, stdout } = await host.run(
      makePackage('1.0.0-a'),
      ['agent', '--url', 'https://api.example.com', '--token', '-'],
      'secret-token\n',
    );
    expect(code).toBe(0);
    expect(stdout.toString()).toContain('1.0.0-a runs');
    const config = inRoot('etc/svc-agent/agent.yaml');
    expect(host.recorded().filter((line) => !line.startsWith('systemctl show'))).toEqual([
      'node --version',
      expect.stringMatching(/^svc-agent check --config .*\/1\.0\.0-a\/etc\/agent\.yaml$/),
      `sync -f ${inRoot('opt/gpu-rental-service/versions/.1.0.0-a')}`,
      `sync -f ${inRoot('opt/gpu-rental-service')}`,
      `sync -f ${inRoot('etc/systemd/system/svc-agent.service')}`,
      'systemctl daemon-reload',
      'systemctl enable --quiet svc-agent',
      `svc-agent enroll --url https://api.example.com --token - --config ${config}`,
      'read secret-token',
      'systemctl restart svc-agent',
      `svc-agent status --config ${config}`,
    ]);
  });

  test('a version whose files a loss of power has emptied is replaced, a whole one is not', async () => {
    const folder = makePackage('1.0.0-a');
    await host.run(folder, ['agent']);
    const node = 'opt/gpu-rental-service/versions/1.0.0-a/bin/node';
    writeFileSync(inRoot(node), '');
    expect((await host.run(folder, ['agent'])).code).toBe(0);
    expect([readFileSync(inRoot(node), 'utf8'), modeOf(node)]).toEqual([PROGRAM, 0o755]);
    host.recorded();
    expect((await host.run(folder, ['agent'])).code).toBe(0);
    expect(host.recorded().join()).not.toContain('versions/.1.0.0-a');
  });

  test('an upgrade restarts what runs, keeps the configuration and the version before', async () => {
    await host.run(makePackage('1.0.0-a'), ['agent']);
    const config = inRoot('etc/svc-agent/agent.yaml');
    writeFileSync(config, 'log_level: debug\n');
    expect(restarts()).toEqual([]);
    host.setActive('svc-agent');
    for (const build of ['1.1.0-b', '1.2.0-c']) {
      const { code, stdout } = await host.run(makePackage(build), ['agent']);
      expect({ code, said: stdout.toString().includes(`${build} runs`) }).toEqual({ code: 0, said: true });
      expect(current('svc-agent')).toBe(`versions/${build}`);
    }
    expect(readFileSync(config, 'utf8')).toBe('log_level: debug\n');
    expect(versions()).toEqual(['1.1.0-b', '1.2.0-c']);
    expect(restarts()).toEqual(['systemctl restart svc-agent', 'systemctl restart svc-agent']);
  });

  test('each role has its own version', async () => {
    await host.run(makePackage('1.0.0-a'), ['control-plane']);
    for (const build of ['1.1.0-b', '1.2.0-c', '1.3.0-d']) await host.run(makePackage(build), ['agent']);
    expect([current('svc-control-plane'), current('svc-agent')]).toEqual(['versions/1.0.0-a', 'versions/1.3.0-d']);
    expect(versions()).toEqual(['1.0.0-a', '1.2.0-c', '1.3.0-d']);
  });

  test('an upgrade and a removal delete the compiled code of the version before', async () => {
    const cache = inRoot('var/cache/svc-control-plane');
    const newer = makePackage('1.1.0-b');
    await host.run(makePackage('1.0.0-a'), ['control-plane']);
    for (const argv of [['control-plane'], ['remove', 'control-plane']]) {
      mkdirSync(cache, { recursive: true });
      expect((await host.run(newer, argv)).code).toBe(0);
      expect(existsSync(cache)).toBe(false);
    }
  });

  test.each([
    ['control-plane', 'broken', 0],
    ['agent', 'broken', 0],
    ['agent', 'silent', 60],
  ])('a %s that does not start (%s) gives way to the version before it', async (role, fault, waits) => {
    await host.run(makePackage('1.0.0-a'), [role]);
    host.setActive(`svc-${role}`);
    host.recorded();
    const { code, stderr } = await host.run(makePackage('1.1.0-b', fault), [role]);
    expect(code).toBe(1);
    expect(stderr).toContain('1.1.0-b does not start, and 1.0.0-a runs again; journalctl --unit');
    expect(current(`svc-${role}`)).toBe('versions/1.0.0-a');
    const recorded = host.recorded();
    expect(recorded.filter((line) => line.startsWith('sleep'))).toHaveLength(waits);
    expect(recorded.filter((line) => line === `systemctl restart svc-${role}`)).toHaveLength(2);
  });

  test('an agent that fails repeatedly is not waited for', async () => {
    await host.run(makePackage('1.0.0-a'), ['agent']);
    host.setActive('svc-agent');
    host.script('systemctl', 'case $1 in is-active) echo activating ;; show) date +%N ;; esac');
    host.recorded();
    const { code, stderr } = await host.run(makePackage('1.1.0-b', 'silent'), ['agent']);
    expect({ code, back: stderr.includes('1.0.0-a runs again') }).toEqual({ code: 1, back: true });
    expect(host.recorded().filter((line) => line.startsWith('sleep'))).toEqual([]);
  });

  test('a package whose own files a loss of power has emptied changes nothing', async () => {
    const folder = makePackage('1.0.0-a');
    await host.run(folder, ['agent']);
    writeFileSync(join(folder, 'BUILD'), '');
    const { code, stderr } = await host.run(folder, ['agent']);
    expect({ code, said: stderr.includes('there is no package in') }).toEqual({ code: 1, said: true });
    expect(versions()).toEqual(['1.0.0-a']);
  });

  test('reports that no version starts', async () => {
    await host.run(makePackage('1.0.0-a', 'broken'), ['control-plane']);
    host.setActive('svc-control-plane');
    const { code, stderr } = await host.run(makePackage('1.1.0-b', 'broken'), ['control-plane']);
    expect({ code, said: stderr.includes('neither 1.1.0-b nor, again, 1.0.0-a starts') }).toEqual({
      code: 1,
      said: true,
    });
  });

  test('everything that a machine lacks is reported at once, and nothing is changed', async () => {
    host.script('uname', '[ "$1" = -s ] && echo Linux || echo aarch64');
    host.script('getconf', 'echo glibc 2.27');
    host.script('id', 'echo 1000');
    host.script('systemctl', 'exit 1');
    host.script('df', 'echo; echo disk 1 1 524287');
    const { code, stderr } = await host.run(makePackage('1.0.0-a', 'unfit'), ['agent']);
    expect(code).toBe(1);
    const lacks = ['not for Linux on aarch64', 'glibc 2.28 or newer', 'as root', 'systemd', '512 MiB'];
    for (const lack of [...lacks, 'svc-agent check says: it has no GPU and no nft']) expect(stderr).toContain(lack);
    expect(readdirSync(host.root)).toEqual([]);
  });

  const hook = 'nvidia-container-runtime-hook';
  test.skipIf(existsSync(`/usr/bin/${hook}`))(
    'a GPU host needs the container toolkit, a control plane does not',
    async () => {
      rmSync(join(host.programs, hook));
      const folder = makePackage('1.0.0-a');
      expect((await host.run(folder, ['agent'])).stderr).toContain(
        `${hook} is missing: install the NVIDIA Container Toolkit`,
      );
      expect(await host.run(folder, ['control-plane'])).toMatchObject({ code: 0, stderr: '' });
    },
  );

  test('it refuses to stand beside the Debian package, whose purge would delete its data', async () => {
    mkdirSync(inRoot('usr/lib/gpu-rental-control-plane'), { recursive: true });
    const { code, stderr } = await host.run(makePackage('1.0.0-a'), ['control-plane']);
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('apt-get remove') as string });
    expect(host.recorded().filter((line) => line.startsWith('useradd'))).toEqual([]);
    expect((await host.run(makePackage('1.0.0-b'), ['agent'])).code).toBe(0);
  });

  test('glibc and disk are enough at the limit', async () => {
    host.script('df', 'echo; echo disk 1 1 524288');
    host.script('getconf', 'echo glibc 2.28');
    const folder = makePackage('1.0.0-a');
    expect((await host.run(folder, ['agent'])).code).toBe(0);
    expect((await host.run(folder, ['control-plane'])).stderr).toContain('glibc 2.34 or newer');
    host.script('getconf', 'echo glibc 2.34');
    expect((await host.run(folder, ['control-plane'])).code).toBe(0);
  });

  test("a new host that fails the agent's own check is not changed; an installed one is upgraded anyway", async () => {
    const { code, stderr } = await host.run(makePackage('1.0.0-a', 'unfit'), ['agent']);
    expect({ code, said: stderr.includes('svc-agent check') }).toEqual({ code: 1, said: true });
    expect(readdirSync(host.root)).toEqual([]);
    await host.run(makePackage('1.1.0-b'), ['agent']);
    expect((await host.run(makePackage('1.2.0-c', 'unfit'), ['agent'])).code).toBe(0);
    expect(current('svc-agent')).toBe('versions/1.2.0-c');
  });

  test('an agent with rentals is removed by force only; its state goes with --purge', async () => {
    const folder = makePackage('1.0.0-a', 'rented');
    await host.run(folder, ['agent']);
    mkdirSync(inRoot('var/lib/svc-agent'), { recursive: true });
    host.setActive('svc-agent');
    host.recorded();
    const refused = await host.run(folder, ['remove', 'agent']);
    expect({ code: refused.code, said: refused.stderr.includes('nothing was removed') }).toEqual({
      code: 1,
      said: true,
    });
    expect(host.recorded().at(-1)).toBe('systemctl enable --quiet --now svc-agent');
    expect(current('svc-agent')).toBe('versions/1.0.0-a');

    expect((await host.run(folder, ['remove', 'agent', '--force'])).code).toBe(0);
    expect(['opt/gpu-rental-service', 'etc/systemd/system/svc-agent.service'].map(inRoot).some(existsSync)).toBe(false);
    expect(readdirSync(inRoot('usr/local/bin'))).toEqual([]);
    expect(existsSync(inRoot('var/lib/svc-agent')) && existsSync(inRoot('etc/svc-agent/agent.yaml'))).toBe(true);

    await host.run(folder, ['agent']);
    expect((await host.run(folder, ['remove', 'agent', '--force', '--purge'])).code).toBe(0);
    expect([existsSync(inRoot('var/lib/svc-agent')), existsSync(inRoot('etc/svc-agent'))]).toEqual([false, false]);
  });

  test('a control plane that runs is removed by force only, its user with its data', async () => {
    const folder = makePackage('1.0.0-a');
    await host.run(folder, ['control-plane']);
    host.setActive('svc-control-plane');
    expect((await host.run(folder, ['remove', 'control-plane'])).stderr).toContain('it serves customers');
    expect((await host.run(folder, ['remove', 'control-plane', '--force', '--purge'])).code).toBe(0);
    expect(host.recorded().at(-1)).toBe('userdel svc-control-plane');
    expect((await host.run(folder, ['remove', 'control-plane'])).stderr).toContain('is not installed');
  });

  test.each(['agent', 'control-plane'])('data of a removed %s can still be purged, once', async (role) => {
    const folder = makePackage('1.0.0-a');
    await host.run(folder, [role]);
    mkdirSync(inRoot(`var/lib/svc-${role}`), { recursive: true });
    expect((await host.run(folder, ['remove', role])).code).toBe(0);
    const purged = await host.run(folder, ['remove', role, '--purge']);
    expect({ code: purged.code, stderr: purged.stderr }).toEqual({ code: 0, stderr: '' });
    expect([`etc/svc-${role}`, `var/lib/svc-${role}`].map(inRoot).filter(existsSync)).toEqual([]);
    const users = host.recorded().filter((line) => line.startsWith('userdel'));
    expect(users).toEqual(role === 'agent' ? [] : ['userdel svc-control-plane']);
    expect((await host.run(folder, ['remove', role, '--purge'])).stderr).toContain('is not installed');
  });

  test('a purge whose user still has processes says so, keeps the data, and can be repeated', async () => {
    const folder = makePackage('1.0.0-a');
    const settings = inRoot('etc/svc-control-plane');
    await host.run(folder, ['control-plane']);
    const purge = ['remove', 'control-plane', '--purge'];
    host.script('userdel', 'exit 8');
    const { code, stderr } = await host.run(folder, purge);
    expect({ code, says: stderr.includes('ps -u svc-control-plane shows them') }).toEqual({ code: 1, says: true });
    expect(existsSync(settings)).toBe(true);
    // Somebody has removed the user.
    host.script('userdel', 'exit 6');
    expect(await host.run(folder, purge)).toMatchObject({ code: 0, stderr: '' });
    expect(existsSync(settings)).toBe(false);
  });

  test('a purge spares the data of an installation in another place', async () => {
    const folder = makePackage('1.0.0-a');
    const kept = inRoot('etc/svc-control-plane/control-plane.yaml');
    await host.run(folder, ['control-plane', '--prefix', '/srv/gpu']);
    const purge = ['remove', 'control-plane', '--purge'];
    expect((await host.run(folder, purge)).stderr).toContain('name that place with --prefix');
    expect((await host.run(folder, ['remove', 'control-plane', '--prefix', '/srv/gpu'])).code).toBe(0);
    host.setActive('svc-control-plane');
    expect((await host.run(folder, purge)).stderr).toContain('name that place with --prefix');
    rmSync(join(dir, 'svc-control-plane'));
    mkdirSync(inRoot('usr/lib/gpu-rental-control-plane'), { recursive: true });
    expect((await host.run(folder, purge)).stderr).toContain('apt-get purge gpu-rental-control-plane');
    expect(existsSync(kept)).toBe(true);
    rmSync(inRoot('usr/lib/gpu-rental-control-plane'), { recursive: true });
    expect((await host.run(folder, purge)).code).toBe(0);
    expect(existsSync(kept)).toBe(false);
  });

  test('what an interrupted run has left goes with the next one, and with a removal', async () => {
    const folder = makePackage('1.1.0-b');
    const interrupted = async (build: string): Promise<void> => {
      host.script('sync', 'exit 1');
      expect((await host.run(makePackage(build), ['agent'])).code).not.toBe(0);
      host.script('sync');
      expect(versions()).toContain(`.${build}`);
    };
    await interrupted('1.0.0-a');
    expect((await host.run(folder, ['agent'])).code).toBe(0);
    expect(versions()).toEqual(['1.1.0-b']);
    await interrupted('1.2.0-c');
    // This version is there and whole, so nothing is copied.
    expect((await host.run(folder, ['agent'])).code).toBe(0);
    expect(versions()).toEqual(['1.1.0-b']);
    await interrupted('1.3.0-d');
    symlinkSync('versions/1.3.0-d', inRoot('opt/gpu-rental-service/svc-agent.new'));
    // A removal that was interrupted. systemd refuses to disable a unit that has no file.
    rmSync(inRoot('etc/systemd/system/svc-agent.service'));
    host.script('systemctl', '[ "$1" != disable ]');
    expect((await host.run(folder, ['remove', 'agent'])).code).toBe(0);
    expect(existsSync(inRoot('opt/gpu-rental-service'))).toBe(false);
  });

  test('a second run beside it changes nothing', async () => {
    const [first, second] = [makePackage('1.0.0-a'), makePackage('1.1.0-b')];
    // install.sh calls getent after it has copied its version.
    const other = `sh ${join(second, 'install.sh')} agent --root ${host.root}`;
    host.script('getent', `${other} 2>"$INSTALLATION/said"`, 'echo $? >>"$INSTALLATION/said"', 'exit 2');
    expect((await host.run(first, ['control-plane'])).code).toBe(0);
    expect(readFileSync(join(dir, 'said'), 'utf8')).toMatch(/^install.sh: another install.sh is at work .*\n1\n$/);
    expect(versions()).toEqual(['1.0.0-a']);
    expect((await host.run(second, ['agent'])).code).toBe(0);
    expect(versions()).toEqual(['1.0.0-a', '1.1.0-b']);
  });

  test.each([
    [['agent', '--url', 'https://x'], 'both --url and --token'],
    [['agent', '--token'], '--token needs a value'],
    [['control-plane', '--url', 'x', '--token', 'y'], '--url is no option of install control-plane'],
    [['agent', '--purge'], '--purge is no option of install agent'],
    [['agent', '--prefix', '/a b'], '--prefix must be'],
    [['agent', '--prefix', 'opt'], '--prefix must be'],
    [['agent', '--prefix', '/opt/'], '--prefix must be'],
    [['remove'], 'Usage'],
    [['bogus'], 'install.sh: bogus is neither agent nor control-plane\n\nUsage'],
    [['remove', 'bogus'], 'install.sh: bogus is neither agent nor control-plane\n\nUsage'],
  ])('%j is refused: %s', async (argv, message) => {
    const folder = makePackage('1.0.0-a');
    const { code, stderr } = await capture(['sh', join(folder, 'install.sh'), ...argv], { env: host.env });
    expect(code).not.toBe(0);
    expect(stderr).toContain(message);
    expect(readdirSync(host.root)).toEqual([]);
  });
});
