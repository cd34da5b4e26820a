// The operator's lists are answered in pages: each is walked whole, and asked at both edges of its limit.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { sql } from '../../../control-plane/base/db/db.ts';
import type { Route } from '../../../control-plane/base/http/route.ts';
import type { Http } from '../../../control-plane/base/http/server.ts';
import { openOperator } from '../../kit/operator.ts';
import { type List, LISTS, NEWEST_FIRST } from '../../kit/operator-lists.ts';
import { openWorld, type World } from '../../kit/world.ts';

/** A page for programs: its order is that of posting. `transfers.store.test.ts` walks it. */
const WALKED_ELSEWHERE = new Set(['/admin/transfers']);

let world: World;
let http: Http;
let routes: readonly Route[];
beforeEach(async () => {
  world = await openWorld();
  ({ http, routes } = openOperator(world));
});
afterEach(async () => {
  await http.close();
  await world.close();
});

interface Page {
  status: number;
  body: { data: Record<string, unknown>[]; next_cursor: string | null; errors?: { field: string; rule: string }[] };
}

async function get(path: string, query: Record<string, string | number>): Promise<Page> {
  const parameters = Object.entries(query).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  const url = [path, parameters.join('&')].filter((part) => part !== '').join(path.includes('?') ? '&' : '?');
  const reply = await http.inject({ method: 'GET', url });
  return { status: reply.status, body: JSON.parse(reply.body) as Page['body'] };
}

const fill = (list: List): Promise<void> => world.db.tx('test.fill', (tx) => list.fill(tx, world.rooms.ledger));

/** The pages of the whole list. */
async function walk({ path, key }: List, limit: number): Promise<unknown[][]> {
  const pages: unknown[][] = [];
  let cursor: string | null = null;
  do {
    const { body } = await get(path, { limit, ...(cursor === null ? {} : { cursor }) });
    pages.push(body.data.map((row) => row[key]));
    cursor = body.next_cursor;
  } while (cursor !== null);
  return pages;
}

test('every list of the operator that has pages is walked here', () => {
  const walked = new Set(LISTS.map(({ path }) => path.replace(/\?.*/, '').replace('/o-1/', '/{id}/')));
  const paged = routes.filter(({ query }) => query instanceof z.ZodObject && 'cursor' in query.shape);
  const paths = paged.map(({ path }) => path).filter((path) => !WALKED_ELSEWHERE.has(path));
  expect(new Set(paths)).toEqual(walked);
});

describe.each(LISTS.map((list) => [list.path, list] as const))('GET %s', (_path, list) => {
  test('shows every row once, newest first, in pages of any size', async () => {
    await fill(list);
    expect(await walk(list, 1)).toEqual(NEWEST_FIRST.map((id) => [id]));
    expect(await walk(list, 2)).toEqual([['r5', 'r4'], ['r3', 'r2'], ['r1']]);
    expect(await walk(list, 5)).toEqual([NEWEST_FIRST]);
    expect(await walk(list, 1_000)).toEqual([NEWEST_FIRST]);
  });

  test('is one empty page if there is nothing', async () => {
    expect(await get(list.path, {})).toEqual({ status: 200, body: { data: [], next_cursor: null } });
  });

  test.each([
    [0, 'at least 1'],
    [1_001, 'at most 1000'],
    ['many', 'number'],
  ])('refuses limit %s', async (limit, rule) => {
    const { status, body } = await get(list.path, { limit });
    expect([status, body.errors?.map(({ field }) => field)]).toEqual([422, ['limit']]);
    expect(body.errors?.[0]?.rule).toContain(rule);
  });

  test('refuses an invented cursor, and one of another list', async () => {
    await fill(list);
    const other = list.path === '/admin/orgs' ? LISTS[4] : LISTS[0];
    if (other !== undefined && !list.path.startsWith('/admin/keys')) await fill(other);
    const foreign = (await get(other?.path ?? '', { limit: 1 })).body.next_cursor ?? 'none';
    for (const cursor of ['abc.def', 'r1', foreign]) {
      const { status, body } = await get(list.path, { cursor });
      expect([status, body.errors]).toEqual([422, [{ field: 'cursor', rule: 'must be a next_cursor of this list' }]]);
    }
  });
});

describe('a search', () => {
  const found = async (path: string, query: Record<string, string | number>): Promise<unknown[]> => {
    const { status, body } = await get(path, query);
    expect(status).toBe(200);
    return body.data.map((row) => row['name']);
  };

  test('finds organisations by a part of their name or id, in any case, in pages', async () => {
    const { accounts } = world.rooms;
    const ids: string[] = [];
    for (const name of ['Acme', 'Bolt 100%', 'acme labs', 'Älpha']) {
      ids.push((await accounts.createOrg(name)).id);
      await world.clock.advance(1);
    }
    expect(await found('/admin/orgs', { search: 'ACME' })).toEqual(['acme labs', 'Acme']);
    expect(await found('/admin/orgs', { search: 'Älp' })).toEqual(['Älpha']);
    expect(await found('/admin/orgs', { search: String(ids[1]) })).toEqual(['Bolt 100%']);
    expect(await found('/admin/orgs', { search: 'nobody' })).toEqual([]);
    const first = (await get('/admin/orgs', { search: 'acme', limit: 1 })).body;
    const rest = { search: 'acme', limit: 1, cursor: String(first.next_cursor) };
    expect(await found('/admin/orgs', rest)).toEqual(['Acme']);
    expect((await get('/admin/orgs', { ...rest, search: 'bolt' })).body.errors).toMatchObject([{ field: 'cursor' }]);
  });

  test.each(['%', '_', '\\'])('takes %j as it stands', async (sign) => {
    const { accounts } = world.rooms;
    await accounts.createOrg('plain');
    await accounts.createOrg(`with ${sign}`);
    expect(await found('/admin/orgs', { search: sign })).toEqual([`with ${sign}`]);
  });

  test('finds people by a part of their e-mail address, name or id', async () => {
    const { people } = world.rooms.users;
    const ids: string[] = [];
    for (const name of ['Ada', 'Bea']) {
      const email = `${name.toLowerCase()}@example.com`;
      ids.push((await people.add({ email, name, isOperator: false, member: undefined })).id);
    }
    expect(await found('/admin/users', { search: 'ada@' })).toEqual(['Ada']);
    expect(await found('/admin/users', { search: 'BEA' })).toEqual(['Bea']);
    expect(await found('/admin/users', { search: String(ids[0]) })).toEqual(['Ada']);
    const { next_cursor: cursor } = (await get('/admin/users', { search: 'example.com', limit: 1 })).body;
    const other = await get('/admin/users', { search: 'ada', limit: 1, cursor: String(cursor) });
    expect(other.body.errors).toMatchObject([{ field: 'cursor' }]);
  });

  test('finds machines by a part of their name, their id or the id of their supplier', async () => {
    const [one, other] = [await world.machine(), await world.machine()];
    await world.db.tx('test.name', (tx) =>
      tx.run(sql`update machines set name = 'Rack 7' where id = ${one.machineId}`),
    );
    const ids = async (search: string): Promise<unknown[]> =>
      (await get('/admin/machines', { search })).body.data.map((row) => row['machine_id']);
    expect(await ids('rack')).toEqual([one.machineId]);
    expect(await ids(other.machineId)).toEqual([other.machineId]);
    expect(await ids(one.supplierId)).toContain(one.machineId);
  });

  test.each([
    ['', 'must have at least 1 character'],
    ['a'.repeat(256), 'must have at most 255 characters'],
  ])('is refused if its text is too short or too long', async (search, rule) => {
    expect((await get('/admin/orgs', { search: 'a'.repeat(255) })).status).toBe(200);
    expect((await get('/admin/orgs', { search })).body.errors).toEqual([{ field: 'search', rule }]);
  });
});
