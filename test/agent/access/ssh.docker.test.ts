// The door of a workload end to end: real Docker Engine, real guest and holder, the real OpenSSH client through a data stream.
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startAgentWorld, type AgentWorld } from '../agent-world.ts';
import { ssh, type SshTarget } from '../ssh-client.ts';
import { busyboxImage, scratchImage } from '../../kit/images.ts';

let world: AgentWorld;
let target: SshTarget;

beforeAll(async () => {
  world = await startAgentWorld({ quarantineMinutes: 0 });
  const image = await busyboxImage(world.registry);
  const key = world.key('user');
  const gpu = 'GPU-00000000-0000-4000-8000-000000000000';
  world.plane.desire([
    world.workload('wl_busybox', image.pinnedRef, {
      gpu_uuids: [gpu],
      env: { GREETING: 'hello', LD_PRELOAD: '/none.so' },
    }),
  ]);
  await world.plane.phase('wl_busybox', 'running');
  const keys = { authorized_keys: [key.publicLine], probe_key: world.key('probe').publicLine };
  target = { port: await world.plane.sshPort('wl_busybox', () => keys), keyFile: key.file };
});

afterAll(async () => {
  await world.stop();
});

const md5 = (bytes: Buffer): string => createHash('md5').update(bytes).digest('hex');

test("a command runs as the image's user with its environment, and its exit code comes back", async () => {
  const result = await ssh(target, 'echo $GREETING; hostname; id -un; pwd; exit 42');
  expect(result.stdout.toString()).toBe('hello\ni-wl_busybox\nroot\n/root\n');
  expect(result.code).toBe(42);
});

test('the rented GPU is there', async () => {
  const result = await ssh(target, 'nvidia-smi --query-gpu=uuid --format=csv,noheader; ls /dev | grep -c nvidia');
  expect(result.stdout.toString()).toContain('GPU-00000000-0000-4000-8000-000000000000\n');
});
