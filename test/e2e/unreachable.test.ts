// Outages with real processes and real time: a host dies, and its customer is credited without asking.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { UsageRow } from '../../shared/api/billing.ts';
import { InstanceEvent } from '../../shared/api/instance-journal.ts';
import { Instance } from '../../shared/api/instance.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { QUIET_AFTER_START_MS } from '../../control-plane/rental/instances/quiet.ts';
import { terminate } from '../kit/api-client.ts';
import { eventually } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { verifyLedger } from '../kit/stack.ts';
import { endChargedThroughout } from '../attacks/charged-throughout.ts';
import { floodIdle } from '../attacks/idle-flood.ts';
import { LINK_PING_MS } from '../../shared/limits.ts';

let stack: RentalStack;
let startedMs: number;

beforeAll(async () => {
  startedMs = performance.now();
  stack = await openRentalStack();
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
});

/** How late a busy machine may answer a ping, and how long its last answer may be on its way. */
const [SLOW_MS, IN_FLIGHT_MS] = [10_000, 1_000];
const MINUTE_MS = 60_000;
/** The audit's flood ended a rental after half an hour. A login goes through it in the short form too. */
const FLOOD_MS = process.env['SOAK'] === '1' ? 32 * MINUTE_MS : 0;

/** Longer than two periods of probes, and than it takes to confirm an outage. */
const PROBED_TWICE_MS = 80_000;

/** Waits for two more probes. The instance runs at all times, so none of them is the second failure in a row. */
async function probesAreGood(read: () => Promise<Instance>): Promise<void> {
  const sinceMs = performance.now();
  await eventually('two probes', 2 * MINUTE_MS, async () => {
    expect((await read()).status).toBe('running');
    return performance.now() - sinceMs > PROBED_TWICE_MS ? true : undefined;
  });
}

async function workloadOf({ id }: Instance): Promise<string> {
  const filters = { label: [`svc.instance_id=${id}`] };
  const [container] = await stack.engine.docker.listContainers({ filters });
  const workloadId = container?.Labels['svc.workload_id'];
  if (workloadId === undefined) throw new Error(`no container of ${id}`);
  return workloadId;
}

// Both wait for probes most of their time, so they run side by side on two GPUs of the one host.
describe.concurrent('rentals that run at all times', () => {
  test(
    'idle connections of strangers neither end billing nor keep the customer out',
    { timeout: FLOOD_MS + 5 * MINUTE_MS },
    async () => {
      const { api } = stack.customer;
      const instance = await stack.rent();
      const flood = floodIdle(instance.connection?.port ?? 0);
      try {
        await eventually('a flood', MINUTE_MS, async () => (flood.opened() >= 24 ? true : undefined));
        const floodedMs = performance.now();
        while (performance.now() - floodedMs < FLOOD_MS) {
          expect((await stack.ssh(instance).run('hostname')).stdout.toString()).toBe(`${instance.id}\n`);
          await probesAreGood(() => api.get(`/instances/${instance.id}`, Instance));
        }
        expect((await stack.ssh(instance).run('hostname')).stdout.toString()).toBe(`${instance.id}\n`);
        await probesAreGood(() => api.get(`/instances/${instance.id}`, Instance));
      } finally {
        flood.stop();
      }
      await endChargedThroughout(api, instance);
    },
  );

  test('a holder that hangs is replaced: the program inside goes on, and nothing is credited', async () => {
    const { api } = stack.customer;
    const instance = await stack.rent({ cmd: ['sh', '-c', 'echo $$ > /tmp/pid; exec sleep 3600'] });
    const before = await stack.ssh(instance).run('cat /tmp/pid');
    const workloadId = await workloadOf(instance);
    const [hung] = stack.host.holders(workloadId);
    if (hung === undefined) throw new Error('there is no holder');
    process.kill(hung, 'SIGSTOP');
    await eventually('another holder', MINUTE_MS, async () => {
      const now = stack.host.holders(workloadId);
      return now.length === 1 && now[0] !== hung ? true : undefined;
    });
    const pid = await eventually('a login', MINUTE_MS, async () => {
      const { code, stdout } = await stack.ssh(instance).run('kill -0 $(cat /tmp/pid) && cat /tmp/pid');
      return code === 0 ? stdout.toString() : undefined;
    });
    expect(pid).toBe(before.stdout.toString());
    await probesAreGood(() => api.get(`/instances/${instance.id}`, Instance));
    await terminate(api, instance.id);
    const { data: events } = await api.get(`/instances/${instance.id}/events`, pageSchema(InstanceEvent));
    expect(events.map(({ type }) => type)).not.toContain('instance.unreachable');
  });
});

test('the outage of a host that dies is detected and not charged, and the instance goes on when the host is back', async () => {
  const { api } = stack.customer;
  const { id } = await stack.rent();
  const read = (): Promise<Instance> => api.get(`/instances/${id}`, Instance);
  const becomes = (status: Instance['status'], withinMs: number): Promise<Instance> =>
    eventually(status, withinMs, async () => {
      const instance = await read();
      return instance.status === status ? instance : undefined;
    });
  // No outage is confirmed while agents may still be reconnecting.
  const quietMs = startedMs + QUIET_AFTER_START_MS + 5_000 - performance.now();
  await new Promise((resolve) => setTimeout(resolve, quietMs));
  expect(await read()).toMatchObject({ status: 'running', last_reachable_at: expect.any(String) });

  const diedMs = Date.now();
  await stack.host.daemon.stop('SIGKILL');
  for (const pid of stack.host.holders()) process.kill(pid, 'SIGKILL');
  const goneMs = Date.now();
  const dead = await becomes('unreachable', 2 * MINUTE_MS);
  const sinceMs = Date.parse(dead.unreachable_since ?? '');
  // The last ping that it answered: no dead time is charged, and no more than one ping of life is credited. A busy machine answers late.
  expect(sinceMs).toBeLessThanOrEqual(goneMs + IN_FLIGHT_MS);
  expect(sinceMs).toBeGreaterThan(diedMs - 1.2 * LINK_PING_MS - SLOW_MS);
  expect(dead.status_reason).toMatch(/not charged/);

  await stack.host.daemon.start();
  const back = await becomes('running', 2 * MINUTE_MS);
  const backMs = Date.now();
  expect(back).not.toHaveProperty('unreachable_since');
  expect((await stack.ssh(back).run('hostname')).stdout.toString()).toBe(`${id}\n`);
  await terminate(api, id);

  const { data: events } = await api.get(`/instances/${id}/events`, pageSchema(InstanceEvent));
  expect(events.map(({ type }) => type).toReversed()).toEqual([
    'instance.creating',
    'instance.starting',
    'instance.running',
    'instance.unreachable',
    'instance.recovered',
    'instance.stopping',
    'instance.terminated',
  ]);
  // Charged from ready to the last proof of life, and from the first one after the outage on: never what lies between.
  const { data: usage } = await api.get('/usage?bucket=day', pageSchema(UsageRow));
  const charged = usage.filter((row) => row.instance_id === id).reduce((sum, row) => sum + row.gpu_seconds, 0);
  const lived = (sinceMs - Date.parse(back.ready_at ?? '') + Date.now() - backMs) / 1000;
  expect(charged).toBeGreaterThan(lived - 60);
  expect(charged).toBeLessThan(lived + 10);
  await verifyLedger(stack.controlPlane);
});
