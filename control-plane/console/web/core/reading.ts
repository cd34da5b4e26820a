// Reads one resource, or the pages of a list. Answers may come later than what is newer than they are: an event, or the answer to a later read.
// Such an answer never replaces what is newer. Each row of a list is a signal of its own, so that a change redraws one row and not the table.
import { type ReadonlySignal, type Signal, signal } from '@preact/signals';
import type { Page } from '../../../../shared/api/page.ts';
import { type ApiError, asApiError, get } from './api.ts';

/** Limit of rows for a list that is read as a whole (`isWhole`), so that it fits into the memory of a browser. */
const ROWS_MAX = 10_000;

export interface Resource<T> {
  /** The resource as it was last read; undefined before the first successful read. */
  data: ReadonlySignal<T | undefined>;
  /** Why the last read failed; undefined if it succeeded. After a failure, `data` keeps the value of the read before. */
  error: ReadonlySignal<ApiError | undefined>;
  reload(): Promise<void>;
}

/** `path` is a function for a path whose query follows the time: each read asks it again. */
export function openResource<T>(path: string | (() => string) | undefined): Resource<T> {
  const data = signal<T | undefined>(undefined);
  const error = signal<ApiError | undefined>(undefined);
  const begin = openOrder();
  return {
    data,
    error,
    reload: async () => {
      if (path === undefined) return;
      const isNewest = begin();
      try {
        const answer = await get<T>(typeof path === 'string' ? path : path());
        if (!isNewest()) return;
        data.value = answer;
        error.value = undefined;
      } catch (failure) {
        if (isNewest()) error.value = asApiError(failure);
      }
    },
  };
}

/** The returned function is called when a read begins, and gives one that says, when it ends, whether no read that began later has ended. */
export function openOrder(): () => () => boolean {
  let begun = 0;
  let newestEnded = 0;
  return () => {
    begun += 1;
    const number = begun;
    return () => {
      newestEnded = Math.max(newestEnded, number);
      return newestEnded === number;
    };
  };
}

export interface LiveList<T> {
  /** What identifies a row. */
  idOf(row: T): string;
  /** The rows that were read so far, in the order of the API; undefined until the first page is there. */
  rows: ReadonlySignal<readonly Signal<T>[] | undefined>;
  error: ReadonlySignal<ApiError | undefined>;
  /** Cursor of the next page; null if the last page was read. */
  next: ReadonlySignal<string | null>;
  /** Reads the next page. */
  more(): Promise<void>;
  /**
   * Reads the first page again. Events keep the rows of later pages current. A list without events, and one whose last read failed, reads all pages
   * again that were read.
   */
  reload(): Promise<void>;
}

interface OpenList<T> extends LiveList<T> {
  /** Reads all pages again that were read before, because events were missed. */
  restart(): Promise<void>;
  /** Replaces the row, or removes it if `row` is null. False if the list has no row with this id. */
  change(id: string, row: T | null): boolean;
}

export interface PagesOptions<T> {
  /** A path with its query, without `cursor`. */
  path: string;
  idOf(row: T): string;
}

interface OpenOptions<T> extends PagesOptions<T> {
  isWhole: boolean;
  isLive: boolean;
}

export function openList<T>({ path, idOf, isWhole, isLive }: OpenOptions<T>): OpenList<T> {
  const rows = signal<readonly Signal<T>[] | undefined>(undefined);
  const next = signal<string | null>(null);
  const { error, read: readPage, hear } = openPages<T>({ path, idOf });
  const idOfRow = (row: Signal<T>): string => idOf(row.peek());
  /** The rows of a page. Those that are shown are changed in place. */
  const rowsOf = (page: Page<T>): ReadPage<T> => {
    const known = new Map((rows.peek() ?? []).map((row) => [idOfRow(row), row]));
    return { rows: page.data.map((entry) => kept(known.get(idOf(entry)), entry)), next: page.next_cursor };
  };
  /** Undefined: nothing is to be shown. */
  const readFirst = async (): Promise<ReadPage<T> | undefined> => {
    const page = await readPage(null);
    return page && rowsOf(page);
  };
  const show = (shown: readonly Signal<T>[], cursor: string | null): void => {
    rows.value = shown;
    next.value = cursor;
  };
  const more = async (): Promise<void> => {
    const cursor = next.peek();
    const found = cursor === null ? undefined : await readPage(cursor);
    if (found === undefined) return undefined;
    // The first page was read meanwhile, and the list ends elsewhere now. The page found does not follow it, and is older than it.
    if (next.peek() !== cursor) return more();
    const page = rowsOf(found);
    const before = rows.peek() ?? [];
    const ids = new Set(before.map(idOfRow));
    show([...before, ...page.rows.filter((row) => !ids.has(idOfRow(row)))], page.next);
  };
  const reload = async (): Promise<void> => {
    const page = await readFirst();
    if (page === undefined) return;
    const behind = tailOf(rows.peek() ?? [], page.rows);
    show([...page.rows, ...behind], behind.length === 0 ? page.next : next.peek());
  };
  const restart = async (): Promise<void> => {
    const before = rows.peek()?.length ?? 0;
    const page = await readFirst();
    // A later read of the first page says nothing about the pages behind it.
    if (page === undefined) return error.peek() === undefined ? restart() : undefined;
    show(page.rows, page.next);
    const wanted = isWhole ? ROWS_MAX : before;
    while (next.peek() !== null && error.peek() === undefined && (rows.peek()?.length ?? 0) < wanted) await more();
  };
  return {
    idOf,
    rows,
    error,
    next,
    // After a failure, further pages may be missing that nothing else would read.
    reload: () => (isLive && error.peek() === undefined ? reload() : restart()),
    more,
    restart,
    change: (id, row) => {
      hear(id, row);
      const found = rows.value?.find((each) => idOfRow(each) === id);
      if (found === undefined) return false;
      if (row !== null) found.value = row;
      else rows.value = rows.value?.filter((each) => each !== found);
      return true;
    },
  };
}

interface Pages<T> {
  error: Signal<ApiError | undefined>;
  /** The page at `cursor`. Undefined: the API refused it, or a read of the first page that began later has ended before. */
  read(cursor: string | null): Promise<Page<T> | undefined>;
  /** Events say that the row is `row` now, or is gone. All reads that are under way keep to that. */
  hear(id: string, row: T | null): void;
}

function openPages<T>({ path, idOf }: PagesOptions<T>): Pages<T> {
  const error = signal<ApiError | undefined>(undefined);
  const joined = path.includes('?') ? '&' : '?';
  const beginFirst = openOrder();
  /** What events have said of rows since a read began, for each read that is under way. */
  const heard = new Set<Map<string, T | null>>();
  const read = async (cursor: string | null): Promise<Page<T> | undefined> => {
    const isNewest = cursor === null ? beginFirst() : () => true;
    const since = new Map<string, T | null>();
    heard.add(since);
    try {
      const page = await get<Page<T>>(cursor === null ? path : `${path}${joined}cursor=${encodeURIComponent(cursor)}`);
      if (!isNewest()) return undefined;
      error.value = undefined;
      // The API answers some short lists as one page without `next_cursor`.
      return { data: afterEvents(page.data, { since, idOf }), next_cursor: page.next_cursor ?? null };
    } catch (failure) {
      if (isNewest()) error.value = asApiError(failure);
      return undefined;
    } finally {
      heard.delete(since);
    }
  };
  return {
    error,
    read,
    hear: (id, row) => {
      for (const since of heard) since.set(id, row);
    },
  };
}

/** The rows that were read, with what events have said of them since the read began. */
function afterEvents<T>(
  entries: readonly T[],
  { since, idOf }: { since: ReadonlyMap<string, T | null>; idOf(row: T): string },
): T[] {
  return entries.flatMap((entry) => {
    const event = since.get(idOf(entry));
    if (event === undefined) return [entry];
    return event === null ? [] : [event];
  });
}

interface ReadPage<T> {
  rows: readonly Signal<T>[];
  next: string | null;
}

/**
 * The rows after the first page, as they were read before. Example: a page has 50 rows, and 2 rows are new. The first page ends with the row that
 * was number 48 before, so the old rows from number 49 on follow it. Empty if the first page has no old row: then rows in between may be missing.
 */
function tailOf<T>(before: readonly Signal<T>[], firstPage: readonly Signal<T>[]): readonly Signal<T>[] {
  const last = firstPage.findLast((row) => before.includes(row));
  return last === undefined ? [] : before.slice(before.indexOf(last) + 1);
}

/** The signal of the row with the new `entry`: `row` itself if it is shown already, else a new signal. */
function kept<T>(row: Signal<T> | undefined, entry: T): Signal<T> {
  if (row === undefined) return signal(entry);
  if (JSON.stringify(row.peek()) !== JSON.stringify(entry)) row.value = entry;
  return row;
}
