// A link keeps none of its messages in memory: a host's inventory and its reports are in the database.
import { expect, test } from 'vitest';
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import { isForgotten } from '../../kit/garbage.ts';
import { linkInMemory, MACHINE } from '../../kit/link-in-memory.ts';
import { inventoryOf } from '../../kit/machines.ts';

test('an idle link has forgotten the hello, the desired state, and the reports of its host', async () => {
  const seen = new Map<string, WeakRef<object>>();
  const note = async (name: string, message: object): Promise<boolean> => seen.set(name, new WeakRef(message)).size > 0;
  const inventory = inventoryOf(8, () => 'u');
  const { link, receive } = linkInMemory(
    { inventory, version: 1 },
    {
      onUp: async (_id, hello) => void (await note('hello', hello)),
      onObserved: (_id, message) => note('observed', message),
      onInventory: (_id, reported) => note('inventory', reported),
      desired: async () => {
        const message = { type: 'desired', epoch: 1, revision: 7, complete: true, now_ms: 0, workloads: [] } as const;
        await note('desired', message);
        return { ...message, workloads: [] };
      },
    },
  );
  receive({ type: 'observed', held: null, workloads: [], unknown_workload_ids: [] });
  receive({ type: 'inventory', inventory });
  await expect
    .poll(() => [...seen.keys()])
    .toEqual(expect.arrayContaining(['hello', 'desired', 'observed', 'inventory']));
  for (const [name, ref] of seen) expect([name, await isForgotten(ref)]).toEqual([name, true]);
  expect(link.isUp(MACHINE)).toBe(true);
});

test('a stream that the host has not dialled yet keeps no keys', async () => {
  const { link, sent } = linkInMemory({ inventory: inventoryOf(1, () => 'u'), version: 1 }, {});
  await expect.poll(() => link.isUp(MACHINE)).toBe(true);
  const request = (): WeakRef<object> => {
    const target: OpenMessage['target'] = { kind: 'ssh', authorized_keys: ['key'], client_ip: '192.0.2.1' };
    link.openStream(MACHINE, 'w', target).catch(() => undefined);
    return new WeakRef(target);
  };
  expect(await isForgotten(request())).toBe(true);
  expect(sent.filter(({ type }) => type === 'open')).toHaveLength(1);
});
