// The probes of the control plane at the SSH server of a rental: a login without channels, on places of their own.
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { afterEach, expect, test } from 'vitest';
import { SSH_PROBES_MAX } from '../../../shared/limits.ts';
import { client, closeSshServers, exec, startWorld, stranger } from '../ssh-server.ts';

afterEach(closeSshServers);

test('a probe gets no channel of any kind', async () => {
  const world = await startWorld();
  const probe = client(world, { port: world.probePort, privateKey: stranger.private });
  await once(probe, 'ready');
  await expect(exec(probe)).rejects.toThrow('Channel open failure');
  await expect(
    new Promise((resolve, reject) => {
      probe.forwardOut('127.0.0.1', 1, '127.0.0.1', 22, (error, channel) => (error ? reject(error) : resolve(channel)));
    }),
  ).rejects.toThrow('Channel open failure');
  expect(world.sessions).toEqual([]);
});

test('two probes have a place at the same time, and a third one takes that of the oldest', async () => {
  const world = await startWorld();
  const probes = [new PassThrough(), new PassThrough(), new PassThrough()] as const;
  const destroyed = (): boolean[] => probes.map((probe) => probe.destroyed);
  for (const probe of probes.slice(0, SSH_PROBES_MAX)) world.run.serveProbe(probe, { probe_key: stranger.public });
  expect(destroyed()).toEqual([false, false, false]);
  world.run.serveProbe(probes[2], { probe_key: stranger.public });
  expect(destroyed()).toEqual([true, false, false]);
});
