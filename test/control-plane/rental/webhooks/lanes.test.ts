// Lanes: their limits at both edges, and no job twice, whatever the reads behind them say.
import { beforeEach, expect, test } from 'vitest';
import { type Lanes, openLanes } from '../../../../control-plane/rental/webhooks/lanes.ts';
import { createLog } from '../../../../shared/log.ts';

const MAX = 8;
const GROUP_MAX = 4;

/** What a read would say is due, by lane. */
let due: Map<string, string[]>;
let slots: number;
/** The groups of lanes that do not stand alone. */
let groups: Map<string, string>;
let carried: string[];
let underWay: Map<string, () => void>;
let read: (key: string) => Promise<void>;
let lanes: Lanes;
beforeEach(() => {
  due = new Map();
  slots = 4;
  groups = new Map();
  carried = [];
  underWay = new Map();
  read = async () => undefined;
  lanes = openLanes<{ id: string; key: string }>({
    max: MAX,
    groupMax: GROUP_MAX,
    groupOf: ({ key }) => groups.get(key) ?? key,
    log: createLog('test', 'silent'),
    due: async (key) => {
      const jobs = (due.get(key) ?? []).map((id) => ({ id, key }));
      await read(key);
      return { slots, jobs };
    },
    carry: ({ id, key }) => {
      carried.push(id);
      return new Promise((resolve) => {
        underWay.set(id, () => {
          underWay.delete(id);
          due.set(
            key,
            (due.get(key) ?? []).filter((other) => other !== id),
          );
          resolve();
        });
      });
    },
  });
});

const settled = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
};
async function check(...keys: string[]): Promise<void> {
  for (const key of keys) lanes.check(key);
  await settled();
}
async function finish(id: string): Promise<void> {
  underWay.get(id)?.();
  await settled();
}

test('a lane has as many under way as it has slots, and goes on when one ends', async () => {
  due.set('a', ['a1', 'a2', 'a3', 'a4', 'a5']);
  await check('a');
  expect(carried).toEqual(['a1', 'a2', 'a3', 'a4']);
  await check('a');
  expect(carried).toHaveLength(4);
  await finish('a2');
  expect(carried).toEqual(['a1', 'a2', 'a3', 'a4', 'a5']);
});

test('all lanes together have no more under way than is allowed, and a lane that has none gets the next free place', async () => {
  for (const key of ['a', 'b', 'c', 'd', 'e'])
    due.set(
      key,
      [1, 2, 3, 4].map((n) => `${key}${n}`),
    );
  expect(lanes.limit()).toBe(MAX);
  await check('a');
  // Four more may start; they may be in the busy lane or in others.
  expect(lanes.limit()).toBe(5);
  await check('b', 'c', 'd', 'e');
  expect([...underWay.keys()]).toEqual(['a1', 'a2', 'a3', 'a4', 'b1', 'b2', 'c1', 'd1']);
  expect(lanes.limit()).toBe(0);
  await finish('a1');
  await check('a', 'b', 'c', 'd', 'e');
  expect(carried.slice(MAX)).toEqual(['e1']);
});

test('the last free place is for a lane that is checked next, not for that whose job has ended', async () => {
  const keys = Array.from({ length: MAX }, (_, n) => `lane${n}`);
  for (const key of [...keys, 'other']) due.set(key, [`${key}-1`, `${key}-2`]);
  slots = 1;
  await check(...keys, 'other');
  expect(lanes.limit()).toBe(0);
  await finish('lane0-1');
  await check('other');
  expect(carried.slice(MAX)).toEqual(['other-1']);
  // A lane that has nothing under way is forgotten, and goes on when it is checked.
  await finish('lane1-1');
  await check('lane0');
  expect(carried.slice(MAX)).toEqual(['other-1', 'lane0-2']);
  expect(lanes.limit()).toBe(0);
});

test('a job that ends while its lane is being read is not started again', async () => {
  due.set('a', ['a1']);
  await check('a');
  const reading = Promise.withResolvers<void>();
  read = () => reading.promise;
  lanes.check('a');
  await settled();
  await finish('a1');
  read = async () => undefined;
  reading.resolve();
  await settled();
  expect(carried).toEqual(['a1']);
  expect(lanes.isUnderWay('a', 'a1')).toBe(false);
});

test('a failed read leaves the lane to the next check', async () => {
  due.set('a', ['a1']);
  read = () => Promise.reject(new Error('the database is away'));
  await check('a');
  expect(carried).toEqual([]);
  read = async () => undefined;
  await check('a');
  expect(carried).toEqual(['a1']);
});

test('a stop starts no further job and waits for the jobs under way', async () => {
  slots = 1;
  due.set('a', ['a1', 'a2']);
  await check('a');
  let isOver = false;
  const stopped = lanes.stop().then(() => (isOver = true));
  await check('a', 'b');
  expect([isOver, lanes.limit()]).toEqual([false, 0]);
  await finish('a1');
  await stopped;
  expect(carried).toEqual(['a1']);
});

test('the lanes of one group leave room for the others, and go on with a later check', async () => {
  groups = new Map([
    ['a', 'first'],
    ['b', 'first'],
  ]);
  slots = 3;
  due = new Map([
    ['a', ['a1', 'a2', 'a3']],
    ['b', ['b1', 'b2']],
    ['c', ['c1']],
  ]);
  await check('a', 'b', 'c');
  expect(carried).toEqual(['a1', 'a2', 'a3', 'b1', 'c1']);
  expect(lanes.fullGroups()).toEqual(['first']);
  await finish('a1');
  expect(lanes.fullGroups()).toEqual([]);
  await check('b');
  expect(carried).toEqual(['a1', 'a2', 'a3', 'b1', 'c1', 'b2']);
});
