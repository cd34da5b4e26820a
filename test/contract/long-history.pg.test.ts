// A page costs as much as it shows: no GET reads the rows of a long history that are no part of its answer.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../control-plane/base/db/columns.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import { copyEverything, type Reading } from '../kit/long-history.ts';
import { openOperator } from '../kit/operator.ts';
import { LISTS } from '../kit/operator-lists.ts';
import { type Api, type ApiAccount, openReadingApi } from './api.ts';
import { PAGED_LISTS } from './paged-lists.ts';
import { makeAll, makerFor, urlOf } from './resources.ts';
import { rentalWithOutage } from './suppliers.ts';

const COPIES = 400;
const PAGE = 20;
/** A page, or one of each kind of row to choose a page from, what stands beside its rows, and the account of the caller. */
const ROWS_MAX = 10 * PAGE;

let api: Api;
let owner: ApiAccount;
let reading: Reading;
let close: () => Promise<void>;
beforeEach(async () => {
  ({ api, reading, close } = await openReadingApi());
  owner = await api.account();
});
afterEach(() => close());

/** @returns its `next_cursor` */
async function expectFewRows(ask: () => Promise<Record<string, unknown>>): Promise<unknown> {
  const { rows, answer, costly } = await reading(ask);
  expect(rows > ROWS_MAX ? [`${rows} rows`, ...costly] : []).toEqual([]);
  return answer['next_cursor'];
}

async function get(url: string): Promise<Record<string, unknown>> {
  const { status, json, body } = await api.call('GET', url, { key: owner.key });
  if (status !== 200) throw new Error(`GET ${url}: ${status} ${body}`);
  return json;
}

/** Two pages of a list. */
async function expectPages(url: string, ask: (url: string) => Promise<Record<string, unknown>>): Promise<void> {
  const first = `${url}limit=${PAGE}`;
  const cursor = await expectFewRows(() => ask(first));
  if (typeof cursor === 'string') await expectFewRows(() => ask(`${first}&cursor=${encodeURIComponent(cursor)}`));
}

/**
 * PostgreSQL does not know how many entries an account has together with its kind, and sorts those of an account with few. It reads a small table of
 * events as a whole to find those of a page.
 */
const MANY_COPIES: Record<string, number> = { listEarnings: 5_000, listEvents: 4_000, listReceiptTotals: 4_000 };
/** It answers with sums over all rentals. */
const USAGE = 'listUsage';

test.each(Object.entries(PAGED_LISTS).filter(([id]) => id !== USAGE))('%s', async (id, open) => {
  const list = await open(api, owner);
  for (let i = 0; i < 3; i += 1) {
    await list.add();
    await api.world.clock.advance(1);
  }
  await copyEverything(api.world.db, MANY_COPIES[id] ?? COPIES);
  await expectPages(list.url, get);
});

test(`${USAGE} reads thousands of open rentals in pieces, and each of them in one piece only`, async () => {
  const rentals = 9_000;
  const list = await PAGED_LISTS[USAGE]?.(api, owner);
  for (let i = 0; i < 3; i += 1) await list?.add();
  await copyEverything(api.world.db, rentals / 3);
  const { rows } = await reading(() => get(`${list?.url}limit=${PAGE}`));
  // The time of each rental is read once more, by its rental.
  expect(rows).toBeGreaterThan(2 * rentals);
  expect(rows).toBeLessThan(4 * rentals);
});

/** Lists of what waits are short in life. Their copies are not. */
const OPERATORS = LISTS.filter(({ isPicked }) => isPicked !== true);

test.each(OPERATORS.map((list) => [list.path, list] as const))('GET %s', async (path, list) => {
  const operator = openOperator(api.world);
  await api.world.db.tx('test.fill', (tx) => list.fill(tx, api.world.rooms.ledger));
  await copyEverything(api.world.db, COPIES);
  await expectPages(`${path}${path.includes('?') ? '&' : '?'}`, (url) => operator.ask('GET', url));
  await operator.http.close();
});

/** These answer with sums: of a month, of an instance, of the last thirty days of a machine, and of all instances that run. */
const SUMS = ['getBill', 'getStatement', 'getInstanceBill', 'getMachine', 'scrapeMetrics'];

test(`every other GET of customers and suppliers reads few rows, but for ${SUMS.join(', ')}`, async () => {
  const urls = await urlsByOperation();
  for (const id of SUMS) expect(urls.delete(id)).toBe(true);
  expect(urls.size).toBeGreaterThan(25);
  await copyEverything(api.world.db, COPIES);
  for (const url of urls.values()) await expectFewRows(() => get(url));
});

async function urlsByOperation(): Promise<Map<string, string>> {
  await makeAll(api, owner);
  const id = await rentalWithOutage(api, owner);
  const rented = z.object({ machine_id: text });
  const instance = await api.world.db.read.one(rented, sql`select machine_id from instances where id = ${id}`);
  const known = new Map([
    ['/v1/instances/{id}', id],
    ['/v1/community/machines/{id}', instance?.machine_id],
  ]);
  const urls = new Map<string, string>();
  for (const { path, operationId, method, scope } of api.routes) {
    if (method !== 'GET' || operationId in PAGED_LISTS || ['none', 'session', 'operator'].includes(scope)) continue;
    const upTo = /^.*\}/.exec(path)?.[0] ?? '';
    const made = known.get(upTo) ?? (await makerFor(path)?.(api, owner)) ?? '';
    urls.set(operationId, urlOf(path, made));
  }
  return urls;
}
