// A request of a host that fails on our side does not end its link: the SSH sessions of its other tenants depend on it.
import { expect, test } from 'vitest';
import type { AgentMessage } from '../../../shared/protocol/link.ts';
import { linkInMemory } from '../../kit/link-in-memory.ts';
import { inventoryOf } from '../../kit/machines.ts';

const failing = async (): Promise<never> => {
  throw new Error('the row cannot be read');
};

test.each<AgentMessage>([
  { type: 'job_events', workload_id: 'wl_bad', events: [{ event: { type: 'message', level: 'info' }, end: 1 }] },
  { type: 'job_url', workload_id: 'wl_bad', purpose: { kind: 'input', name: 'data' } },
  { type: 'pull_login', workload_id: 'wl_bad' },
])('a failing $type gets no answer, and what the host sends next is handled', async (message) => {
  const answers = { job_events: 'job_events_kept', job_url: 'job_url', pull_login: 'pull_login' };
  let inventories = 0;
  const inventory = inventoryOf(1, () => 'u');
  const { sent, receive } = linkInMemory(
    { inventory, version: 4 },
    {
      onJobEvents: (_machine, workloadId) => (workloadId === 'wl_bad' ? failing() : Promise.resolve(7)),
      jobUrl: failing,
      pullLogin: failing,
      onInventory: async () => (inventories += 1) > 0,
    },
  );
  await expect.poll(() => sent.some(({ type }) => type === 'desired')).toBe(true);
  receive(message);
  receive({ type: 'job_events', workload_id: 'wl_good', events: [] });
  receive({ type: 'inventory', inventory });
  await expect.poll(() => inventories).toBe(1);
  const given = sent.filter(({ type }) => Object.values(answers).includes(type));
  expect(given).toEqual([{ type: 'job_events_kept', workload_id: 'wl_good', offset: 7 }]);
});
