// A rented GPU is lost on its host, with real processes: the customer reads it, is not charged, and goes on when it is back.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { InstanceEvent } from '../../shared/api/instance-journal.ts';
import { Instance } from '../../shared/api/instance.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { terminate } from '../kit/api-client.ts';
import { eventually } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';

const dir = mkdtempSync(join(tmpdir(), 'broken-'));
const faults = join(dir, 'faults');
let stack: RentalStack;

beforeAll(async () => {
  stack = await openRentalStack({ hostEnv: { FAKE_GPU_FAULTS: faults } });
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
  rmSync(dir, { recursive: true });
});

/** If one of the two readings at the start fails, the next one comes a minute later. */
const READ_MS_MAX = 90_000;

/** An agent checks its GPUs twice when it starts, then once a minute. */
async function lookAgain(): Promise<void> {
  await stack.host.daemon.stop('SIGTERM');
  await stack.host.daemon.start();
}

test('a GPU that is lost under an instance is shown and not charged until it is back; the instance goes on', async () => {
  const { api } = stack.customer;
  const instance = await stack.rent();
  const read = (): Promise<Instance> => api.get(`/instances/${instance.id}`, Instance);
  const environment = await stack.ssh(instance).run('echo "$NVIDIA_VISIBLE_DEVICES"');
  const gpu = environment.stdout.toString().trim();
  expect(gpu).toMatch(/^GPU-/);

  writeFileSync(faults, `${gpu},lost\n`);
  await lookAgain();
  const broken = await eventually('a reason', READ_MS_MAX, async () => {
    const now = await read();
    return now.status_reason === undefined ? undefined : now;
  });
  expect(broken).toMatchObject({
    status: 'running',
    status_reason: expect.stringContaining(`${gpu}: nvidia-smi does not list it`),
  });
  expect(broken.status_reason).toContain('not charged');
  expect((await stack.ssh(broken).run('hostname')).stdout.toString()).toBe(`${instance.id}\n`);

  writeFileSync(faults, '');
  await lookAgain();
  await eventually('no reason', READ_MS_MAX, async () =>
    (await read()).status_reason === undefined ? true : undefined,
  );
  await terminate(api, instance.id);
  const { data: events } = await api.get(`/instances/${instance.id}/events`, pageSchema(InstanceEvent));
  expect(events.map(({ type }) => type).toReversed()).toEqual([
    'instance.creating',
    'instance.starting',
    'instance.running',
    'instance.gpu_broken',
    'instance.gpu_mended',
    'instance.stopping',
    'instance.terminated',
  ]);
});
