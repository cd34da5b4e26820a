// kill -9 of every process while it is at work: containers and sessions go on, launches complete once, the books agree.
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { Balance, UsageRow } from '../../shared/api/billing.ts';
import { Instance } from '../../shared/api/instance.ts';
import { Operation } from '../../shared/api/operation.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { followOperation, terminate, type ApiClient } from '../kit/api-client.ts';
import { busyboxImage, type TestImage } from '../kit/images.ts';
import { echoes, eventually } from '../kit/processes.ts';
import { ONE_GPU, openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { openSshClient } from '../kit/ssh-client.ts';
import { openCustomer, verifyLedger } from '../kit/stack.ts';

let stack: RentalStack;
let instance: Instance;

beforeAll(async () => {
  stack = await openRentalStack();
  instance = await stack.rent();
});

afterEach(async () => {
  await verifyLedger(stack.controlPlane);
});

afterAll(async () => {
  expect(await stack.end()).toEqual([]);
});

/** Ids of the containers of an instance, running or not. */
async function containersOf({ id }: Instance): Promise<string[]> {
  const filters = { label: [`svc.instance_id=${id}`] };
  const list = await stack.engine.docker.listContainers({ all: true, filters });
  return list.map(({ Id }) => Id);
}

/** Takes a second or more to pull. */
function bigImage(tag: string): Promise<TestImage> {
  return busyboxImage(stack.registry, { tag, files: { weights: randomBytes(64 * 1024 ** 2) } });
}

async function waitForPull(api: ApiClient, { operation_id: id }: Operation): Promise<void> {
  await eventually('pull', 20_000, async () => {
    const { progress } = await api.get(`/operations/${id}`, Operation);
    return progress?.includes('MiB') ? true : undefined;
  });
}

/** Proves that a session is alive: what goes in comes out. */

test('kill -9 of the supervisor: the container and the SSH session go on, and the next supervisor adopts both', async () => {
  const ssh = stack.ssh(instance);
  const [containers, holders] = [await containersOf(instance), stack.host.holders()];
  expect([containers.length, holders.length]).toEqual([1, 1]);
  const session = ssh.start('cat');
  await echoes(session, 'before');
  await stack.host.daemon.stop('SIGKILL');
  await echoes(session, 'without');
  await stack.host.daemon.start();
  await echoes(session, 'after');
  expect(await ssh.run('hostname')).toMatchObject({ code: 0 });
  expect(await containersOf(instance)).toEqual(containers);
  expect(stack.host.holders()).toEqual(holders);
  await session.stop();
});

test('kill -9 of the control plane: sessions end, the instance runs on, and the next connection is served', async () => {
  const ssh = stack.ssh(instance);
  const containers = await containersOf(instance);
  const session = ssh.start('cat');
  await echoes(session, 'before');
  await stack.controlPlane.daemon.stop('SIGKILL');
  expect(await session.exited).toMatchObject({ code: 255 });
  await stack.controlPlane.daemon.start();
  await eventually('served connection', 30_000, async () => ((await ssh.run('true')).code === 0 ? true : undefined));
  expect(await containersOf(instance)).toEqual(containers);
  expect(await stack.customer.api.get(`/instances/${instance.id}`, Instance)).toMatchObject({ status: 'running' });
});

test('kill -9 of the control plane while a launch is in flight: it completes once', async () => {
  const payer = await openCustomer(stack, 'payer');
  const { api } = payer;
  const image = await bigImage('big');
  const idempotencyKey = 'a launch that is cut off';
  const request = { ...ONE_GPU, image: image.ref };
  const accepted = await api.post('/instances', request, Operation, idempotencyKey);
  await waitForPull(api, accepted);
  await stack.controlPlane.daemon.stop('SIGKILL');
  const killedMs = Date.now();
  await stack.controlPlane.daemon.start();
  // The caller that saw its connection break asks again with the same key.
  const again = await api.post('/instances', request, Operation, idempotencyKey);
  expect(again.operation_id).toBe(accepted.operation_id);
  const done = await followOperation(api, accepted.operation_id);
  expect(done).toMatchObject({ state: 'succeeded' });
  const { data: launched } = await api.get('/instances', pageSchema(Instance));
  expect(launched.map(({ id, status }) => ({ id, status }))).toEqual([{ id: done.resource_id, status: 'running' }]);
  const rented = await api.get(`/instances/${done.resource_id ?? ''}`, Instance);
  expect(Date.parse(rented.ready_at ?? '')).toBeGreaterThan(killedMs);
  expect(await containersOf(rented)).toHaveLength(1);
  expect(await openSshClient(rented, payer.identity).run('true')).toMatchObject({ code: 0 });
  await terminate(api, rented.id);

  // One charge: the balance lost what the one row of usage says, and nothing is held any more.
  const { data: usage } = await api.get('/usage?bucket=month', pageSchema(UsageRow));
  expect(usage.map(({ instance_id: id }) => id)).toEqual([rented.id]);
  const { balance, held_cents: held } = await api.get('/balance', Balance);
  expect(held).toBe(0);
  expect(Math.abs((100 - Number(balance)) * 100 - (usage[0]?.cost_cents ?? 0))).toBeLessThanOrEqual(1);
});

test('kill -9 of the supervisor while a launch is in flight: it completes once', async () => {
  const { api } = stack.customer;
  const image = await bigImage('other');
  const accepted = await api.post('/instances', { ...ONE_GPU, image: image.ref }, Operation);
  await waitForPull(api, accepted);
  await stack.host.daemon.stop('SIGKILL');
  const killedMs = Date.now();
  await stack.host.daemon.start();
  const done = await followOperation(api, accepted.operation_id);
  expect(done).toMatchObject({ state: 'succeeded' });
  const rented = await api.get(`/instances/${done.resource_id ?? ''}`, Instance);
  expect(Date.parse(rented.ready_at ?? '')).toBeGreaterThan(killedMs);
  expect(await containersOf(rented)).toHaveLength(1);
  await terminate(api, rented.id);
});

test('kill -9 of a holder: a new one serves the next connection, with the same host key and container', async () => {
  const ssh = stack.ssh(instance);
  const containers = await containersOf(instance);
  const holders = stack.host.holders();
  const session = ssh.start('cat');
  await echoes(session, 'before');
  for (const pid of holders) process.kill(pid, 'SIGKILL');
  expect(await session.exited).toMatchObject({ code: 255 });
  // The host key is checked: only the same one is let in.
  await eventually('served connection', 30_000, async () => ((await ssh.run('true')).code === 0 ? true : undefined));
  expect(await containersOf(instance)).toEqual(containers);
  const now = stack.host.holders();
  expect(now).toHaveLength(1);
  expect(now).not.toEqual(holders);
});

test.each(['SIGTERM', 'SIGKILL'] as const)(
  'dockerd ends by %s and comes back: the container is adopted',
  async (signal) => {
    const ssh = stack.ssh(instance);
    const containers = await containersOf(instance);
    const startedAt = await startTimes(containers);
    const session = ssh.start('cat');
    await echoes(session, 'before');
    await stack.engine.restart(signal);
    await echoes(session, 'after');
    // A launch goes through the agent's eyes on the new dockerd: after it, the old container has been looked at too.
    const other = await stack.rent();
    await terminate(stack.customer.api, other.id);
    await echoes(session, 'still');
    expect(await containersOf(instance)).toEqual(containers);
    expect(await startTimes(containers)).toEqual(startedAt);
    expect(await stack.customer.api.get(`/instances/${instance.id}`, Instance)).toMatchObject({ status: 'running' });
    await session.stop();
  },
);

async function startTimes(containers: readonly string[]): Promise<string[]> {
  const all = await Promise.all(containers.map((id) => stack.engine.docker.getContainer(id).inspect()));
  return all.map(({ State }) => `${State.Pid} since ${State.StartedAt}`);
}

test('kill -9 of everything at once: what comes back finds the instance running and serves it', async () => {
  const ssh = stack.ssh(instance);
  const containers = await containersOf(instance);
  const holders = stack.host.holders();
  await Promise.all([stack.controlPlane.daemon.stop('SIGKILL'), stack.host.daemon.stop('SIGKILL')]);
  for (const pid of holders) process.kill(pid, 'SIGKILL');
  await stack.controlPlane.daemon.start();
  await stack.host.daemon.start();
  await eventually('served connection', 30_000, async () => ((await ssh.run('true')).code === 0 ? true : undefined));
  expect(await containersOf(instance)).toEqual(containers);
  // On a busy machine a second one may have been started. It finds the first one and exits.
  await eventually('one holder', 20_000, async () => (stack.host.holders().length === 1 ? true : undefined));
});

test('no log holds the API key', () => {
  const logs = [stack.controlPlane.daemon.logPath, stack.host.daemon.logPath].map((path) => readFileSync(path, 'utf8'));
  expect(logs.filter((text) => text.includes(stack.customer.key))).toEqual([]);
});
