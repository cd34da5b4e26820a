// A report that repeats the last one of its link is dropped, because most reports of a host at rest do.
import { beforeEach, expect, test } from 'vitest';
import { openReports, type Reports, type Session } from '../../../control-plane/fleet/link/session.ts';
import type { AgentMessage } from '../../../shared/protocol/link.ts';
import { inventoryOf } from '../../kit/machines.ts';

let reports: Reports;
let handled: number;
let isTaken: boolean;
beforeEach(() => {
  reports = openReports();
  handled = 0;
  isTaken = true;
});

const newLink = (): Session => ({
  machineId: 'm-1',
  protocol: 2,
  publicKey: 'key',
  life: () => ({ isAnswering: true, lastMs: 0, upSinceMs: 0 }),
  isBehind: () => false,
  send: () => undefined,
  close: () => undefined,
});
const observed = (revision: number): AgentMessage => ({
  type: 'observed',
  held: { epoch: 1, revision },
  workloads: [],
  unknown_workload_ids: [],
});
const inventory = (): AgentMessage => ({ type: 'inventory', inventory: inventoryOf(1, () => 'u') });
const send = async (session: Session, ...sent: AgentMessage[]): Promise<number> => {
  handled = 0;
  for (const report of sent) {
    await reports.take(session, report, async () => {
      handled += 1;
      return isTaken;
    });
  }
  return handled;
};

test('a repeated report is dropped, and one with another revision is not', async () => {
  const link = newLink();
  expect(await send(link, observed(1), inventory())).toBe(2);
  expect(await send(link, observed(1), inventory(), observed(1), inventory())).toBe(0);
  expect(await send(link, observed(2), observed(1))).toBe(2);
});

test('each link has its own last report', async () => {
  expect(await send(newLink(), observed(1))).toBe(1);
  expect(await send(newLink(), observed(1))).toBe(1);
});

test('a report that was ignored, or that failed, is handled again', async () => {
  const link = newLink();
  isTaken = false;
  expect(await send(link, observed(1), observed(1))).toBe(2);
  const failing = reports.take(link, observed(1), () => Promise.reject(new Error('the database is away')));
  await expect(failing).rejects.toThrow('away');
  isTaken = true;
  expect(await send(link, observed(1), observed(1))).toBe(1);
});
