// Answers of the service that arrive after something newer: what they may not replace, and what they still tell.
import { expect, test, vi } from 'vitest';
import { requestsUnderWay } from './requests-under-way.ts';

interface Key {
  id: string;
  status: string;
}

interface Reading {
  openResource(path: string | (() => string)): {
    data: { value: Key | undefined };
    error: { value: unknown };
    reload(): Promise<void>;
  };
  openList(options: { path: string; idOf(row: Key): string; isWhole: boolean; isLive: boolean }): {
    rows: { value: readonly { value: Key }[] | undefined };
    error: { value: unknown };
    reload(): Promise<void>;
    restart(): Promise<void>;
    more(): Promise<void>;
    change(id: string, row: Key | null): boolean;
  };
}

/** The sources of the console are typed for a browser, so they are loaded by name. */
const READING_FILE: string = '../../../control-plane/console/web/core/reading.ts';
const { openResource, openList } = (await import(READING_FILE)) as Reading;

const underWay = requestsUnderWay();

const key = (id: string, status = 'active'): Key => ({ id, status });
const page = (...data: Key[]): object => ({ data, next_cursor: null });
const openKeys = (isWhole = false) => openList({ path: '/v1/api-keys', idOf: ({ id }) => id, isWhole, isLive: true });
type Keys = ReturnType<typeof openKeys>;
const shown = ({ rows }: Keys): string[] => (rows.value ?? []).map(({ value: { id, status } }) => `${id} ${status}`);

/** A list with two active keys, which is read again; its answer is under way. */
async function readAgain(): Promise<{ list: Keys; isRead: Promise<void> }> {
  const list = openKeys();
  const first = list.reload();
  underWay[0]?.answer(page(key('a'), key('b')));
  await first;
  return { list, isRead: list.reload() };
}

test('an event that came while a list was read is kept, and the other rows are as they were read', async () => {
  const { list, isRead } = await readAgain();
  expect(list.change('a', key('a', 'revoked'))).toBe(true);
  underWay[1]?.answer(page(key('new'), key('a'), key('b', 'expired')));
  await isRead;
  expect(shown(list)).toEqual(['new active', 'a revoked', 'b expired']);
});

test('a row that an event removed while the list was read does not come back', async () => {
  const { list, isRead } = await readAgain();
  list.change('a', null);
  underWay[1]?.answer(page(key('a'), key('b')));
  await isRead;
  expect(shown(list)).toEqual(['b active']);
});

test('an event for a row of the next page that came while that page was read is kept', async () => {
  const list = openKeys();
  const first = list.reload();
  underWay[0]?.answer({ data: [key('a')], next_cursor: 'after_a' });
  await first;
  const isRead = list.more();
  expect(list.change('b', key('b', 'revoked'))).toBe(false);
  underWay[1]?.answer(page(key('b')));
  await isRead;
  expect(shown(list)).toEqual(['a active', 'b revoked']);
});

test('a next page that was asked for before the first page changed is read again behind the new end', async () => {
  const list = openKeys();
  const first = list.reload();
  underWay[0]?.answer({ data: [key('a'), key('b')], next_cursor: 'after_b' });
  await first;
  const isRead = list.more();
  // Somebody has deleted `a`, so `c` moved to the first page, and then it was revoked.
  const again = list.reload();
  underWay[2]?.answer({ data: [key('b'), key('c', 'revoked')], next_cursor: 'after_c' });
  await again;
  underWay[1]?.answer({ data: [key('c'), key('d')], next_cursor: 'after_d' });
  const next = await vi.waitUntil(() => underWay[3]);
  expect(next.url).toContain('cursor=after_c');
  next.answer(page(key('d', 'new')));
  await isRead;
  expect(shown(list)).toEqual(['b active', 'c revoked', 'd new']);
});

test('a read that begins after an event shows what it has read', async () => {
  const { list, isRead } = await readAgain();
  list.change('a', key('a', 'revoked'));
  underWay[1]?.answer(page(key('a'), key('b')));
  await isRead;
  const later = list.reload();
  underWay[2]?.answer(page(key('a', 'deleted'), key('b')));
  await later;
  expect(shown(list)).toEqual(['a deleted', 'b active']);
});

test.each(['answer', 'failure'])('the %s of an older read of a list does not replace a newer answer', async (end) => {
  const { list, isRead } = await readAgain();
  const later = list.reload();
  underWay[2]?.answer(page(key('a', 'revoked'), key('b')));
  await later;
  if (end === 'answer') underWay[1]?.answer(page(key('a'), key('b')));
  else underWay[1]?.breakOff();
  await isRead;
  expect(shown(list)).toEqual(['a revoked', 'b active']);
  expect(list.error.value).toBeUndefined();
});

test('a list that is read as a whole is read whole, also if a later read of its first page is faster', async () => {
  const list = openKeys(true);
  const isWhole = list.restart();
  const later = list.reload();
  const firstPage = { data: [key('a')], next_cursor: 'after_a' };
  underWay[1]?.answer(firstPage);
  await later;
  underWay[0]?.answer(firstPage);
  (await vi.waitUntil(() => underWay[2])).answer(firstPage);
  (await vi.waitUntil(() => underWay[3])).answer(page(key('b')));
  await isWhole;
  expect(shown(list)).toEqual(['a active', 'b active']);
});

test('a list that is read as a whole is read whole when it is read again after a failure', async () => {
  const list = openKeys(true);
  const first = list.restart();
  underWay[0]?.breakOff();
  await first;
  const again = list.reload();
  underWay[1]?.answer({ data: [key('a')], next_cursor: 'after_a' });
  (await vi.waitUntil(() => underWay[2])).answer(page(key('b')));
  await again;
  expect(shown(list)).toEqual(['a active', 'b active']);
});

test.each(['answer', 'failure'])('the %s of an older read of a resource does not replace a newer one', async (end) => {
  const resource = openResource('/v1/api-keys/a');
  const reads = [resource.reload(), resource.reload()];
  underWay[1]?.answer(key('a', 'revoked'));
  await reads[1];
  if (end === 'answer') underWay[0]?.answer(key('a'));
  else underWay[0]?.breakOff();
  await reads[0];
  expect(resource.data.value).toEqual(key('a', 'revoked'));
  expect(resource.error.value).toBeUndefined();
});

test('a path that follows the time is asked for again by each read', async () => {
  let hour = 1;
  const resource = openResource(() => `/v1/metrics?from=${hour}`);
  const first = resource.reload();
  underWay[0]?.answer(key('a'));
  await first;
  hour = 2;
  const second = resource.reload();
  underWay[1]?.answer(key('b'));
  await second;
  expect(underWay.map(({ url }) => url.split('?').at(-1))).toEqual(['from=1', 'from=2']);
  expect(resource.data.value?.id).toBe('b');
});
