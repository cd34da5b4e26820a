// The commands of `svc` that log in to instances and show their pages.
import { closeSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { api, openSvcForEachTest, owner, svcOf } from './svc-of-test.ts';

openSvcForEachTest();

describe('ssh and cp', () => {
  test('they run the programs of the system with the host key of the API', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    const svc = svcOf();
    expect((await svc.run('ssh', id, '-L', '8080:localhost:80', 'nvidia-smi', '-l')).code).toBe(0);
    const { json } = await api.call('GET', `/v1/instances/${id}`, { key: owner.key });
    const {
      hostname,
      port,
      host_key: key,
    } = json['connection'] as { hostname: string; port: number; host_key: string };
    const file = join(svc.home, '.config/svc/known_hosts.d', `${hostname}-${port}`);
    expect(readFileSync(file, 'utf8')).toBe(`[${hostname}]:${port} ${key}\n`);
    const pinned = [
      '-o',
      `UserKnownHostsFile="${file}"`,
      '-o',
      'StrictHostKeyChecking=yes',
      '-o',
      'GlobalKnownHostsFile=/dev/null',
    ];
    const host = `root@${hostname}`;
    expect(svc.programs).toEqual([
      ['ssh', '-p', String(port), ...pinned, host, '-L', '8080:localhost:80', 'nvidia-smi', '-l'],
    ]);
    await svc.run('cp', '-r', './data', `${id}:/root/data`);
    expect(svc.programs[1]).toEqual(['scp', '-P', String(port), ...pinned, '-r', './data', `${host}:/root/data`]);
    await svc.run('cp', '-i', 'my key', './data', `${id}:/root/data`);
    expect(svc.programs[2]?.slice(-4)).toEqual(['-i', 'my key', './data', `${host}:/root/data`]);
  });

  test('a file with the host key that another ssh reads at the same time stays whole', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    const svc = svcOf();
    await svc.run('ssh', id);
    const folder = join(svc.home, '.config/svc/known_hosts.d');
    const [name = ''] = readdirSync(folder);
    const reader = openSync(join(folder, name), 'r');
    const before = readFileSync(join(folder, name), 'utf8');
    writeFileSync(join(folder, name), 'the key before\n');
    await svc.run('ssh', id);
    expect(readFileSync(reader, 'utf8')).toBe('the key before\n');
    closeSync(reader);
    expect(readFileSync(join(folder, name), 'utf8')).toBe(before);
    expect(readdirSync(folder)).toEqual([name]);
  });

  test('they write an IPv6 address as each program takes it', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    const ofIpv6: typeof fetch = async (url, init) => {
      const body = (await (await fetch(url, init)).json()) as { connection?: object };
      return Response.json(
        body.connection ? { ...body, connection: { ...body.connection, hostname: '2001:db8::1' } } : body,
      );
    };
    const svc = svcOf({ fetch: ofIpv6 });
    await svc.run('ssh', id);
    await svc.run('cp', './data', `${id}:/root/data`);
    expect(svc.programs.map((program) => program.at(-1))).toEqual([
      'root@2001:db8::1',
      'root@[2001:db8::1]:/root/data',
    ]);
  });

  test.each([
    ['ssh_command', 'ssh -oProxyCommand=touch${IFS}x@h -p 22'],
    ['hostname', '../../.ssh/authorized_keys'],
    ['hostname', '-oProxyCommand=x'],
  ])('they run no program if the %s of the answer is %s', async (member, value) => {
    await api.world.machine();
    const id = await api.world.run(owner);
    const hostile: typeof fetch = async (url, init) => {
      const answer = await fetch(url, init);
      const body = (await answer.json()) as { connection?: object };
      return Response.json(body.connection ? { ...body, connection: { ...body.connection, [member]: value } } : body);
    };
    const svc = svcOf({ fetch: hostile });
    expect(await svc.run('ssh', id)).toMatchObject({ code: 1, stderr: expect.stringContaining('is no login') });
    expect(svc.programs).toEqual([]);
  });

  test('they exit with the code of the program', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    expect((await svcOf({ programCode: 42 }).run('ssh', id, 'exit 42')).code).toBe(42);
  });

  test.each(['stopping', 'stopped', 'terminated', 'error'])(
    'an instance that is %s is nothing to wait for: they name its events',
    async (status) => {
      await api.world.machine();
      const id = await api.world.launch(owner);
      const ended: typeof fetch = async (url, init) => {
        const body = (await (await fetch(url, init)).json()) as { id?: string };
        return Response.json(body.id === id ? { ...body, status, connection: null } : body);
      };
      const { code, stderr } = await svcOf({ fetch: ended }).run('ssh', id);
      expect({ code, stderr }).toEqual({
        code: 1,
        stderr: expect.stringMatching(
          new RegExp(`^svc: the instance is ${status}.*\nSee what happened: svc instance events ${id}\n`),
        ),
      });
    },
  );

  test('an instance that does not run yet is a clear refusal', async () => {
    await api.world.machine();
    const id = await api.world.launch(owner);
    const svc = svcOf();
    expect(await svc.run('ssh', id)).toMatchObject({ code: 1, stderr: expect.stringContaining(`svc wait ${id}`) });
    expect(svc.programs).toEqual([]);
  });
});

describe('open', () => {
  test('prints the address of the application, and of the browser console', async () => {
    await api.world.machine();
    const id = await api.world.run(owner, { ports: [{ port: 8080, protocol: 'http', primary: true }] });
    expect(await svcOf().run('open', id)).toMatchObject({ code: 0, stdout: expect.stringMatching(/^https?:/) });
    expect(await svcOf().run('open', id, '--terminal')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^https?:/),
    });
  });

  test('says why an instance has no application, and how to launch one that has', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    expect(await svcOf().run('open', id)).toEqual({
      code: 3,
      stdout: '',
      stderr:
        `svc: the instance was launched without a primary port, so it has no application to show\n` +
        `Name the port at the launch: --port 8080/http/primary. A shell in it: svc open ${id} --terminal\n`,
    });
  });

  test('says that the browser console is there only while the instance runs', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    const booting: typeof fetch = async (url, init) => {
      const body = (await (await fetch(url, init)).json()) as { connection?: object };
      return Response.json({
        ...body,
        status: 'starting',
        ...(body.connection ? { connection: { ...body.connection, terminal_url: undefined } } : {}),
      });
    };
    expect(await svcOf({ fetch: booting }).run('open', id, '--terminal')).toEqual({
      code: 3,
      stdout: '',
      stderr: `svc: the instance is starting, and has a browser console only while it runs\nWait for it: svc wait ${id}\n`,
    });
  });

  test('shows no browser an address that is no page', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    const hostile: typeof fetch = async (url, init) => {
      const body = (await (await fetch(url, init)).json()) as { connection?: object };
      return Response.json(
        body.connection ? { ...body, connection: { ...body.connection, app_url: 'file:///etc/passwd' } } : body,
      );
    };
    expect(await svcOf({ fetch: hostile }).run('open', id)).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('which is no address of a page'),
    });
  });
});
