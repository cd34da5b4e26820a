// Requests that wait for a server of their model: how many may wait, in all and of one organisation.
import { beforeEach, expect, test } from 'vitest';
import type { Deployment } from '../../../control-plane/models/catalog/deployments.ts';
import {
  type Demand,
  type DemandDeps,
  openDemand,
  type Outlook,
} from '../../../control-plane/models/replicas/demand.ts';
import { WAITING_REQUESTS_MAX, WAITING_REQUESTS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const DEPLOYMENT = { start_deadline_seconds: 600 } as Deployment;

let demand: Demand;
let outlook: Outlook;
beforeEach(() => {
  outlook = { isComing: true, mayStart: true, retryMs: 0, wakeMs: undefined };
  const clock = virtualClock();
  let waiting = 0;
  demand = openDemand({
    clock,
    db: { tx: async () => undefined } as unknown as DemandDeps['db'],
    loads: { noteWaiting: (_, change) => (waiting += change), saveOne: async () => undefined },
    outlook: () => outlook,
    nudge: () => undefined,
  });
});

const wait = (orgId: string, hasUpstreams = false): Promise<void> => {
  const { signal } = new AbortController();
  const waits = { deployment: DEPLOYMENT, orgId, sinceMs: 0, signal, wasRefused: false, hasUpstreams };
  return demand.wait('small:economy', waits);
};
const waitMany = (count: number, orgId: string): Promise<void>[] => Array.from({ length: count }, () => wait(orgId));

test('one organisation leaves a quarter of the queue to the others, and is let in again when its requests go on', async () => {
  const own = waitMany(WAITING_REQUESTS_PER_ORG_MAX, 'first');
  await expect(wait('first')).rejects.toMatchObject({
    code: 'upstream_unavailable',
    details: { detail: expect.stringContaining('192 requests of this organisation') },
  });
  const others = waitMany(WAITING_REQUESTS_MAX - WAITING_REQUESTS_PER_ORG_MAX, 'second');
  await expect(wait('third')).rejects.toMatchObject({ code: 'upstream_unavailable' });
  demand.notify();
  await Promise.all([...own, ...others]);
  const again = waitMany(WAITING_REQUESTS_PER_ORG_MAX, 'first');
  demand.notify();
  await Promise.all(again);
});

test('a tier that may start nothing refuses at once, unless a server of the operator may come free', async () => {
  Object.assign(outlook, { isComing: false, mayStart: false });
  await expect(wait('first')).rejects.toMatchObject({ code: 'upstream_unavailable' });
  const waits = wait('first', true);
  demand.notify();
  await waits;
});
