// Page cursors: complete walks, limits of the page size, and every kind of wrong cursor.
import { describe, expect, test } from 'vitest';
import { byCreation, openCursors, type PageStart, type PageView } from '../../../../control-plane/base/http/cursors.ts';
import { PageQuery } from '../../../../shared/api/page.ts';

const cursors = openCursors(new Uint8Array(32).fill(7));
interface Row {
  created_ms: number;
  id: string;
}
const view: PageView<Row, string> = { at: byCreation, show: (row) => row.id };
/** Newest first, several rows in one millisecond. */
const rows: Row[] = Array.from({ length: 7 }, (_, i) => ({ created_ms: 100 - Math.floor(i / 3), id: `id-${9 - i}` }));

async function fetch({ from, count }: PageStart): Promise<Row[]> {
  const older = (row: Row): boolean =>
    from === undefined || row.created_ms < from.createdMs || (row.created_ms === from.createdMs && row.id < from.id);
  return rows.filter(older).slice(0, count);
}

describe('pages', () => {
  // Specification 2.1: A walk by cursor shows every entry once, in order.
  test.each([1, 2, 3, 6, 7, 8])('of %d entries show every row once, in order', async (limit) => {
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await cursors.page('list', { cursor, limit }, fetch, view);
      seen.push(...page.data);
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
    expect(seen).toEqual(rows.map((row) => row.id));
  });
  // Specification 2.1: next_cursor is null when no further page exists.
  test('an exactly full last page has no next cursor', () => {
    expect(cursors.pageOf('list', rows.slice(0, 3), 3, view).next_cursor).toBeNull();
    expect(cursors.pageOf('list', [], 3, view)).toEqual({ data: [], next_cursor: null });
  });
});

test('each list and each row has its own cursor, also beyond the cursors that are kept', () => {
  const at = (list: string, n: number): string => {
    const [row, more] = [
      { created_ms: n, id: `id-${n}` },
      { created_ms: 0, id: '' },
    ];
    return cursors.pageOf(list, [row, more], 1, view).next_cursor ?? '';
  };
  const first = [at('one', 0), at('other', 0)];
  const all = Array.from({ length: 1_500 }, (_, n) => at('one', n));
  expect(new Set([...all, ...first]).size).toBe(1_501);
  all.forEach((cursor, n) => expect(cursors.read('one', cursor)).toEqual({ createdMs: n, id: `id-${n}` }));
  expect([at('one', 0), at('other', 0)]).toEqual(first);
});

describe('a wrong cursor is refused', () => {
  const good = cursors.pageOf('list', rows, 2, view).next_cursor ?? '';
  const flipped = `${good.startsWith('W') ? 'X' : 'W'}${good.slice(1)}`;
  test.each([
    ['of another list', 'other', good],
    [
      'signed by another secret',
      'list',
      openCursors(new Uint8Array(32)).pageOf('list', rows, 2, view).next_cursor ?? '',
    ],
    ['changed', 'list', flipped],
    ['without signature', 'list', good.split('.')[0] ?? ''],
    ['made up', 'list', 'abc.def'],
    ['an offset', 'list', '2'],
  ])('%s', (_what, list, cursor) => {
    expect(() => cursors.read(list, cursor)).toThrow(expect.objectContaining({ code: 'validation_failed' }));
  });
});

describe('limit', () => {
  // Specification 2.1: limit: default 50, minimum 1, maximum 200.
  test.each([
    [undefined, 50],
    ['1', 1],
    ['200', 200],
  ])('%s is %d', (limit, expected) => {
    expect(PageQuery.parse({ limit }).limit).toBe(expected);
  });
  test.each(['0', '201', '-1', '1.5', 'many', ''])('%s is refused', (limit) => {
    expect(PageQuery.safeParse({ limit }).success).toBe(false);
  });
});
