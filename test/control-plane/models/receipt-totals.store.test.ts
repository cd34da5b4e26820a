// The totals of receipts: each closed receipt is counted exactly once, in its hour, day and month, and none is forgotten before.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { brought } from '../../../control-plane/brings.ts';
import { countRow } from '../../../control-plane/base/db/columns.ts';
import { type Db, sql, type Sql } from '../../../control-plane/base/db/db.ts';
import { forgetReceipts } from '../../../control-plane/models/gateway/brings.ts';
import { completeUntilMs, sumReceipts, type Total, totalRows } from '../../../control-plane/models/gateway/totals.ts';
import { forgetOld } from '../../../control-plane/loops.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const SETTLING_MS = 120_000;
const NEVER = new AbortController().signal;
const DECEMBER_MS = Date.UTC(2026, 11, 1);

let world: World;
beforeEach(async () => {
  world = await openWorld();
  await world.clock.advance(DECEMBER_MS + DAY_MS - world.clock.now());
});
afterEach(() => world.close());

const write = (statement: Sql): Promise<number> => world.db.tx('test.write', (tx) => tx.run(statement));

/** A receipt that was closed then. Its id is `rcp_<name>`. */
function close(
  name: string,
  atMs: number,
  { model = 'small', key = 'apk-1', ucents = 7n, images = 0 } = {},
): Promise<number> {
  return write(
    sql`insert into request_receipts (id, org_id, api_key_id, request_id, model_id, tier, state, held_ucents, charged_ucents, prompt_tokens,
          completion_tokens, images, opened_ms, closed_ms)
        values (${`rcp_${name}`}, 'o', ${key}, 'req', ${model}, 'serverless', 'settled', ${ucents}, ${ucents}, 2, 3, ${images || null}, 1, ${atMs})`,
  );
}

const run = (db: Db = world.db): Promise<boolean> => sumReceipts({ db, clock: world.clock }, NEVER);
const window = {
  orgId: 'o',
  span: 'day',
  groupBy: 'none',
  startMs: 0,
  endMs: 2 * DECEMBER_MS,
  after: undefined,
} as const;
const rows = (asked: Partial<Parameters<typeof totalRows>[1]> = {}): Promise<Total[]> =>
  totalRows(world, { ...window, limit: 50, ...asked });
const counted = async (asked: Parameters<typeof rows>[0] = {}): Promise<unknown[]> =>
  (await rows(asked)).map(({ startMs, group, requests }) => [startMs - DECEMBER_MS, group, requests]);
const requests = async (): Promise<number> => (await rows()).reduce((sum, row) => sum + row.requests, 0);

test('a receipt counts in the hour, the day and the month in which it was closed', async () => {
  await close('a', DECEMBER_MS - 1, { images: 4 });
  await close('b', DECEMBER_MS);
  await close('c', DECEMBER_MS + HOUR_MS - 1);
  await close('d', DECEMBER_MS + HOUR_MS);
  await run();
  expect(await counted({ span: 'hour' })).toEqual([
    [-HOUR_MS, '', 1],
    [0, '', 2],
    [HOUR_MS, '', 1],
  ]);
  expect(await counted({ span: 'month' })).toEqual([
    [-30 * DAY_MS, '', 1],
    [0, '', 3],
  ]);
  const [first, second] = await rows();
  expect(first).toMatchObject({ requests: 1, promptTokens: 2, completionTokens: 3, images: 4, costUcents: 7n });
  expect(second).toMatchObject({ requests: 3, promptTokens: 6, completionTokens: 9, images: 0, costUcents: 21n });
});

test('rows are of a model, of a key or of all requests, and a request that cost nothing counts too', async () => {
  await close('a', DECEMBER_MS, { model: 'big', key: 'apk-1' });
  await close('b', DECEMBER_MS, { model: 'small', key: 'apk-2' });
  await close('c', DECEMBER_MS, { model: 'small', key: 'apk-1', ucents: 0n });
  await run();
  expect(await counted({ groupBy: 'model' })).toEqual([
    [0, 'big', 1],
    [0, 'small', 2],
  ]);
  expect(await counted({ groupBy: 'api_key_id' })).toEqual([
    [0, 'apk-1', 2],
    [0, 'apk-2', 1],
  ]);
  expect(await counted({ orgId: 'another' })).toEqual([]);
});

test('pages of any size have the same rows, each once', async () => {
  for (let i = 0; i < 130; i += 1)
    await close(String(i), DECEMBER_MS + i * 60_000, { key: `apk-${i % 7}`, model: `m-${i % 3}` });
  await run();
  const all = await rows({ span: 'hour', groupBy: 'api_key_id' });
  expect(all).toHaveLength(21);
  expect(all.reduce((sum, row) => sum + row.requests, 0)).toBe(130);
  const paged: Total[] = [];
  for (let after: Total | undefined; paged.length < 21; after = paged.at(-1))
    paged.push(...(await rows({ span: 'hour', groupBy: 'api_key_id', after, limit: 4 })));
  expect(paged).toEqual(all);
});

test('a receipt waits until clocks and transactions cannot bring one before it any more, and the totals say how far they reach', async () => {
  const nowMs = world.clock.now();
  await close('old', nowMs - SETTLING_MS - 1);
  await close('young', nowMs - SETTLING_MS);
  await run();
  expect([await requests(), await completeUntilMs(world.db.read, nowMs)]).toEqual([1, nowMs - SETTLING_MS]);
  // Another control plane, whose clock is slow, commits one that was closed before.
  await close('late', nowMs - SETTLING_MS);
  await world.clock.advance(1);
  await run();
  expect(await requests()).toBe(3);
  expect(await run()).toBe(false);
  expect(await requests()).toBe(3);
});

test('while receipts wait to be summed, the totals reach to the first of them', async () => {
  const nowMs = world.clock.now();
  expect(await completeUntilMs(world.db.read, nowMs)).toBe(nowMs - SETTLING_MS);
  await close('first', DECEMBER_MS);
  await close('second', DECEMBER_MS + 1);
  expect(await completeUntilMs(world.db.read, nowMs)).toBe(DECEMBER_MS);
  await run();
  expect(await completeUntilMs(world.db.read, nowMs)).toBe(nowMs - SETTLING_MS);
});

test('two processes that sum up at once count each receipt once', async () => {
  for (let i = 0; i < 5; i += 1) await close(String(i), DECEMBER_MS - i * DAY_MS);
  await Promise.all([run(), run(), run()]);
  await run();
  expect(await requests()).toBe(5);
});

test('a process that dies in the middle of a piece leaves nothing of it, and the next one goes on', async () => {
  await close('november', DECEMBER_MS - 1);
  await close('december', DECEMBER_MS);
  let pieces = 0;
  const dying: Db = {
    ...world.db,
    tx: (name, body) =>
      world.db.tx(name, async (tx) => {
        const result = await body(tx);
        pieces += 1;
        if (pieces >= 2) throw new Error('killed');
        return result;
      }),
  };
  await expect(run(dying)).rejects.toThrow('killed');
  expect(await requests()).toBe(1);
  await run();
  expect(await requests()).toBe(2);
});

test('no receipt is forgotten before it is counted, and totals outlive their receipts', async () => {
  const nowMs = world.clock.now();
  await close('a', DECEMBER_MS);
  await close('b', nowMs);
  expect(await forgetReceipts(world.db, { untilMs: nowMs, limit: 10 })).toBe(0);
  await run();
  expect(await forgetReceipts(world.db, { untilMs: nowMs, limit: 10 })).toBe(1);
  await world.clock.advance(40 * DAY_MS);
  const keep = { events_days: 400, operations_days: 90, workloads_days: 30, receipts_days: 31 };
  await forgetOld(NEVER, brought(world.brings({ keep }), 'forgets'), world.core);
  expect(await world.db.read.one(countRow, sql`select count(*) as count from request_receipts`)).toEqual({ count: 0 });
  expect(await requests()).toBe(2);
});
