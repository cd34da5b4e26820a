// Images that try to run code before our guest or in its place. In each of them the guest connects, so their code did not run first.
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startAgentWorld, type AgentWorld } from '../agent-world.ts';
import { ssh, type SshIdentity, type SshTarget } from '../../kit/ssh-client.ts';
import { stuckLibrary } from '../../attacks/stuck-library.ts';
import { busyboxImage, type ImageOptions } from '../../kit/images.ts';
import { runProgram } from '../../kit/processes.ts';

let world: AgentWorld;
let key: SshIdentity;
beforeAll(async () => {
  world = await startAgentWorld({ quarantineMinutes: 0 });
  key = await world.identity('user');
});
afterAll(() => world.stop());

async function rent(name: string, image: ImageOptions): Promise<SshTarget> {
  const id = `wl_${name}`;
  const { pinnedRef } = await busyboxImage(world.registry, { name, ...image });
  world.plane.desire([world.workload(id, pinnedRef)]);
  await world.plane.phase(id, 'running', 30_000);
  const keys = { authorized_keys: [key.publicKey] };
  return { port: await world.plane.sshPort(id, () => keys), keyFile: key.keyFile };
}

const stuck = stuckLibrary();
const provider = 'nodejs_conf = a\n[a]\nproviders = b\n[b]\nevil = c\n[c]\nmodule = /evil.so\nactivate = 1\n';
const libraries = { '/.svc/lib/libc.so.6': stuck, '/.svc/lib/libm.so.6': stuck };

test.each<[string, ImageOptions]>([
  ['preload', { files: { '/etc/ld.so.preload': '/evil.so\n', '/evil.so': stuck } }],
  ['openssl', { files: { '/etc/ssl/openssl.cnf': provider, '/evil.so': stuck } }],
  ['volume', { config: { Volumes: { '/.svc/lib': {} } }, files: libraries }],
  ['linked', { config: { Volumes: { '/a/b/c': {} } }, links: { '/a/b/c': '/.svc/lib' }, files: libraries }],
  ['init', { config: { Volumes: { '/sbin': {} } }, files: { '/sbin/docker-init': '#!/bin/sh\nexec sleep 1000000\n' } }],
  [
    'environment',
    {
      config: { Env: ['LD_PRELOAD=/evil.so', 'LD_AUDIT=/evil.so', 'NODE_OPTIONS=-r /x'] },
      files: { '/evil.so': stuck },
    },
  ],
])('an image does not come before our guest: %s', async (name, image) => {
  const target = await rent(name, image);
  // The shell itself, which needs no library.
  expect((await ssh(target, 'echo here')).stdout.toString()).toBe('here\n');
});

test('programs of the image are loaded as the image says', async () => {
  const program = '/usr/bin/cut';
  const linked = await runProgram({ command: 'ldd', args: [program] });
  const needed = [program, ...[...linked.matchAll(/(\/\S+) \(0x/g)].flatMap(([, path]) => path ?? [])];
  const files = Object.fromEntries(needed.map((path) => [path, readFileSync(path)]));
  const target = await rent('honest', { files: { ...files, '/etc/ld.so.preload': '/none.so\n' } });
  const { code, stderr } = await ssh(target, `${program} -c 1 /etc/passwd`);
  expect(stderr).toContain("object '/none.so' from /etc/ld.so.preload cannot be preloaded");
  expect(code).toBe(0);
});

test("our files replace the engine's in /etc, so no tenant can fill the host's disk through them", async () => {
  const target = await rent('etc', {});
  const fill = 'for file in hosts hostname resolv.conf; do echo x >> /etc/$file || echo $file is closed; done';
  expect((await ssh(target, `${fill} 2> /dev/null`)).stdout.toString()).toBe(
    'hosts is closed\nhostname is closed\nresolv.conf is closed\n',
  );
  const swap = 'mv /etc/hosts /etc/h; rm /etc/hosts; umount /etc/hosts; mount -o remount,rw /etc/hosts; cat /etc/hosts';
  expect((await ssh(target, `${swap} 2> /dev/null`)).stdout.toString()).toContain('127.0.1.1 i-wl_etc\n');
  expect((await ssh(target, 'hostname; cat /etc/hostname; grep nameserver /etc/resolv.conf')).stdout.toString()).toBe(
    'i-wl_etc\ni-wl_etc\nnameserver 127.0.0.11\n',
  );
});
