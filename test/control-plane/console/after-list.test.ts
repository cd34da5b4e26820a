// Lists of the console that are paged by the id of the last row: answers that arrive after something newer.
import { expect, test, vi } from 'vitest';
import { requestsUnderWay } from './requests-under-way.ts';

interface Row {
  id: string;
}

interface AfterList {
  page: { value: { data: readonly Row[]; has_more: boolean } | undefined };
  error: { value: unknown };
  more(): Promise<void>;
  reload(): Promise<void>;
}

/** The sources of the console are typed for a browser, so they are loaded by name. */
const FILE: string = '../../../control-plane/console/web/models/after-list.ts';
const { openAfterList } = (await import(FILE)) as { openAfterList(path: string): AfterList };

const underWay = requestsUnderWay();
const pageOf = (hasMore: boolean, ...ids: string[]): object => ({ data: ids.map((id) => ({ id })), has_more: hasMore });

const shown = ({ page }: AfterList): string => (page.value?.data ?? []).map(({ id }) => id).join('');

/** A list with the rows `a` and `b`, and more behind them. */
async function opened(): Promise<AfterList> {
  const list = openAfterList('/v1/files?limit=2');
  const first = list.reload();
  underWay[0]?.answer(pageOf(true, 'a', 'b'));
  await first;
  return list;
}

test('the next page follows the last row', async () => {
  const list = await opened();
  const isRead = list.more();
  expect(underWay[1]?.url).toContain('after=b');
  underWay[1]?.answer(pageOf(false, 'c'));
  await isRead;
  expect([shown(list), list.page.value?.has_more]).toEqual(['abc', false]);
});

test('a next page that was asked for before the first page was read again is read again too', async () => {
  const list = await opened();
  const isRead = list.more();
  const again = list.reload();
  underWay[2]?.answer(pageOf(true, 'n', 'a'));
  await again;
  underWay[1]?.answer(pageOf(false, 'c'));
  const next = await vi.waitUntil(() => underWay[3]);
  expect(next.url).toContain('after=a');
  next.answer(pageOf(false, 'b', 'c'));
  await isRead;
  expect(shown(list)).toBe('nabc');
});

test.each(['answer', 'failure'])('the %s of an older read does not replace a newer answer', async (end) => {
  const list = await opened();
  const reads = [list.reload(), list.reload()];
  underWay[2]?.answer(pageOf(false, 'n'));
  await reads[1];
  if (end === 'answer') underWay[1]?.answer(pageOf(true, 'a', 'b'));
  else underWay[1]?.breakOff();
  await reads[0];
  expect([shown(list), list.error.value]).toEqual(['n', undefined]);
});
