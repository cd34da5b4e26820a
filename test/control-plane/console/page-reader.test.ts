// Lists that a screen reads as a whole: every page is read, a long list is read more rarely, and an endless one is cut.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

interface AllRows {
  rows: readonly number[];
  isCut: boolean;
}

interface PageReader {
  WHOLE_ROWS_MAX: number;
  openReader(
    path: string,
    options: { signal: AbortSignal; everyMs?: number },
    tell: (all: AllRows) => void,
  ): () => Promise<void>;
}

/** The sources of the console are typed for a browser, so they are loaded by name. */
const READER_FILE: string = '../../../control-plane/console/web/core/page-reader.ts';
const { openReader, WHOLE_ROWS_MAX } = (await import(READER_FILE)) as PageReader;

const EVERY_MS = 5_000;

/** How many rows the list of the service has. */
let length: number;
let asked: URL[];
let told: AllRows[];

beforeEach(() => {
  asked = [];
  told = [];
  vi.stubGlobal('fetch', async (path: string) => {
    const url = new URL(path, 'http://localhost');
    asked.push(url);
    const from = Number(url.searchParams.get('cursor') ?? 0);
    const to = Math.min(from + Number(url.searchParams.get('limit')), length);
    const data = Array.from({ length: to - from }, (_, index) => from + index);
    return Response.json({ data, next_cursor: to === length ? null : String(to) });
  });
});
afterEach(() => {
  vi.unstubAllGlobals();
});

function reader(path = '/v1/pricing'): () => Promise<void> {
  const signal = new AbortController().signal;
  return openReader(path, { signal, everyMs: EVERY_MS }, (all) => told.push(all));
}

describe('a reader of all pages', () => {
  test.each([0, 1, 200, 201, 1_000])('tells all %d rows of a list', async (rows) => {
    length = rows;
    await reader()();
    expect(told).toEqual([{ rows: Array.from({ length: rows }, (_, index) => index), isCut: false }]);
    expect(asked).toHaveLength(Math.max(1, Math.ceil(rows / 200)));
  });

  test('keeps the query of its path', async () => {
    length = 201;
    await reader('/v1/usage?bucket=day')();
    expect(asked.map(({ search }) => search)).toEqual(['?bucket=day&limit=200', '?bucket=day&limit=200&cursor=200']);
  });

  test('stops at its limit, and says that the list is cut', async () => {
    length = WHOLE_ROWS_MAX + 1;
    await reader()();
    expect(told.map(({ rows, isCut }) => [rows.length, isCut])).toEqual([[WHOLE_ROWS_MAX, true]]);
  });

  test('skips as many calls as it has read further pages', async () => {
    length = 401;
    const read = reader();
    for (let call = 0; call < 7; call += 1) await read();
    expect(told).toHaveLength(3);
    expect(asked).toHaveLength(9);
  });

  test('reads the longest list once a minute', async () => {
    length = WHOLE_ROWS_MAX;
    const read = reader();
    for (let ms = 0; ms <= 60_000; ms += EVERY_MS) await read();
    expect(told).toHaveLength(2);
  });

  test('has one read under way at a time, and reads at the next call after a failure', async () => {
    length = 401;
    const read = reader();
    await Promise.all([read(), read()]);
    expect(asked).toHaveLength(3);
    const broken = reader();
    const { fetch } = globalThis;
    vi.stubGlobal('fetch', async () => Promise.reject(new TypeError('Failed to fetch')));
    await expect(broken()).rejects.toMatchObject({ code: 'unreachable' });
    vi.stubGlobal('fetch', fetch);
    await broken();
    expect(told).toHaveLength(2);
  });
});
