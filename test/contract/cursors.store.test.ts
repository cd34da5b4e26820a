// Every list with pages: the pages are stable while entries come and go between them.
import { expect, test } from 'vitest';
import { seededRng } from '../../shared/rng.ts';
import type { Answer } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { PAGED_LISTS, type PagedList } from './paged-lists.ts';
import { inputSchema } from './requests.ts';

const ENTRIES = 7;
const PAGE = 2;
/** Lists that are the same for everybody. */
const OF_EVERYBODY = ['listGpuTypes', 'listPricing', 'listTemplates'];

openApiForEachTest();

// Specification 2.1: No list with a cursor is left out of that.
test('these tests cover every route that takes a cursor', () => {
  const paged = api.routes.filter(({ query }) => inputSchema(query)?.properties?.['cursor'] !== undefined);
  expect(paged.map(({ operationId }) => operationId).toSorted()).toEqual(Object.keys(PAGED_LISTS).toSorted());
});

// Specification 2.1: Every list holds still between its pages, and what is new comes before what has been seen.
// Specification 4.3: GET /v1/instances takes cursor and limit and answers a page of instances.
test.each(Object.entries(PAGED_LISTS))(
  '%s skips and repeats nothing while entries are made and deleted between its pages',
  async (_id, open) => {
    const list = await open(api, owner);
    const rng = seededRng(9);
    const leavings: (() => Promise<unknown>)[] = [];
    const add = async (): Promise<void> => {
      const leave = await list.add();
      if (leave !== undefined) leavings.push(leave);
    };
    for (let i = 0; i < ENTRIES; i += 1) {
      await add();
      // Some have the same time.
      await api.world.clock.advance(i % 2);
    }
    const before = await idsOf(list);
    const seen = await walk(list, async () => {
      await add();
      await leavings.splice(Math.floor(rng.float() * leavings.length), 1)[0]?.();
    });
    const after = new Set(await idsOf(list));
    expect(seen.length).toBe(new Set(seen).size);
    expect(seen).toEqual(expect.arrayContaining(before.filter((id) => after.has(id))));
    const old = seen.filter((id) => before.includes(id));
    expect(old).toEqual(before.filter((id) => seen.includes(id)));
    expect(list.isByName ? old : seen).toEqual(old);
  },
);

test.each(Object.entries(PAGED_LISTS))('%s has no cursor on a last page that is exactly full', async (_id, open) => {
  const list = await open(api, owner);
  for (let i = 0; i < 3; i += 1) await list.add();
  const all = await idsOf(list);
  expect(all.length).toBeGreaterThan(1);
  const full = await read(list, all.length);
  expect(entriesOf(list, full).map(list.idOf)).toEqual(all);
  expect([full.json.next_cursor, full.json['has_more'] ?? false]).toEqual([null, false]);
  const first = await read(list, all.length - 1);
  expect(first.json['has_more'] ?? true).toBe(true);
  const last = await read(list, all.length - 1, first.json.next_cursor ?? '');
  expect(entriesOf(list, last).map(list.idOf)).toEqual(all.slice(-1));
  expect([last.json.next_cursor, last.json['has_more'] ?? false]).toEqual([null, false]);
});

test.each(Object.entries(PAGED_LISTS).filter(([id]) => !OF_EVERYBODY.includes(id)))(
  '%s refuses the cursor of another owner, although it is genuine',
  async (_id, open) => {
    const other = await api.account();
    const theirs = await open(api, other);
    for (let i = 0; i < 3; i += 1) await theirs.add();
    const mine = await open(api, owner);
    const { json } = await api.call('GET', `${theirs.url}limit=1`, { key: other.key });
    const cursor = encodeURIComponent(json.next_cursor ?? '');
    expect(cursor).not.toBe('');
    expect((await api.call('GET', `${theirs.url}limit=1&cursor=${cursor}`, { key: other.key })).status).toBe(200);
    const refused = await api.call('GET', `${mine.url}limit=1&cursor=${cursor}`, { key: owner.key });
    expect(refused.status).toBe(422);
    expect(refused.body).toContain('must be a next_cursor of this list');
  },
);

// Specification 2.1: A page without a limit has 50 entries.
test('a page has 50 entries if no limit is named', async () => {
  const list = await PAGED_LISTS['listRegistryCredentials']?.(api, owner);
  for (let i = 0; i < 51; i += 1) await list?.add();
  const { json } = await api.call('GET', '/v1/registry-credentials', { key: owner.key });
  expect(json.data).toHaveLength(50);
  expect(json.next_cursor).not.toBeNull();
});

async function idsOf(list: PagedList): Promise<string[]> {
  const answer = await read(list, 200);
  expect(answer.json.next_cursor).toBeNull();
  return entriesOf(list, answer).map(list.idOf);
}

/** What the pages show, with `between` after each of them. Every page but the last is full. */
async function walk(list: PagedList, between: () => Promise<void>): Promise<string[]> {
  const seen: string[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const answer: Answer = await read(list, PAGE, cursor);
    const shown = entriesOf(list, answer).map(list.idOf);
    cursor = answer.json.next_cursor ?? null;
    expect(shown).toHaveLength(cursor === null ? Math.min(shown.length, PAGE) : PAGE);
    seen.push(...shown);
    await between();
  }
  return seen;
}

function entriesOf({ member }: PagedList, { json }: Answer): Record<string, unknown>[] {
  return json[member ?? 'data'] ?? [];
}

async function read(list: PagedList, limit: number, cursor = ''): Promise<Answer> {
  const from = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
  const answer = await api.call('GET', `${list.url}limit=${limit}${from}`, { key: owner.key });
  expect(answer.status).toBe(200);
  return answer;
}
