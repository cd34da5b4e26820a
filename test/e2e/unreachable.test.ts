// The promise that no rival keeps, with real processes and real time: a host dies, and its customer is credited without asking.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { UsageRow } from '../../shared/api/billing.ts';
import { InstanceEvent } from '../../shared/api/instance-journal.ts';
import { Instance } from '../../shared/api/instance.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { QUIET_AFTER_START_MS } from '../../control-plane/rental/edge/verdict.ts';
import { terminate } from '../kit/api-client.ts';
import { eventually } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { verifyLedger } from '../kit/stack.ts';

let stack: RentalStack;
let startedMs: number;

beforeAll(async () => {
  startedMs = performance.now();
  stack = await openRentalStack();
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
});

const MINUTE_MS = 60_000;

test('a host that dies is found out, its dead time is not charged, and the rental goes on when it is back', async () => {
  const { api } = stack.customer;
  const { id } = await stack.rent();
  const read = (): Promise<Instance> => api.get(`/instances/${id}`, Instance);
  const becomes = (status: Instance['status'], withinMs: number): Promise<Instance> =>
    eventually(status, withinMs, async () => {
      const instance = await read();
      return instance.status === status ? instance : undefined;
    });
  // Nobody is confirmed dead while the agents may still be coming back.
  const quietMs = startedMs + QUIET_AFTER_START_MS + 5_000 - performance.now();
  await new Promise((resolve) => setTimeout(resolve, quietMs));
  expect(await read()).toMatchObject({ status: 'running', last_reachable_at: expect.any(String) });

  const diedMs = Date.now();
  await stack.host.daemon.stop('SIGKILL');
  for (const pid of stack.host.holders()) process.kill(pid, 'SIGKILL');
  const dead = await becomes('unreachable', 2 * MINUTE_MS);
  const sinceMs = Date.parse(dead.unreachable_since ?? '');
  expect(sinceMs).toBeGreaterThanOrEqual(diedMs);
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
  // Charged from ready to the first failed look, and from the recovery on: never what lies between.
  const { data: usage } = await api.get('/usage?bucket=day', pageSchema(UsageRow));
  const charged = usage.reduce((sum, row) => sum + row.gpu_seconds, 0);
  const lived = (sinceMs - Date.parse(back.ready_at ?? '') + Date.now() - backMs) / 1000;
  expect(charged).toBeGreaterThan(lived - 60);
  expect(charged).toBeLessThan(lived + 10);
  await verifyLedger(stack.controlPlane);
});
