// Reads the data of screens: one resource, or the pages of a list. Both follow the live stream. Each row of a list is a signal of its own, so
// that a change redraws one row and not the table.
import { type ReadonlySignal, type Signal, signal } from '@preact/signals';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Page } from '../../../../shared/api/page.ts';
import { ApiError, get } from './api.ts';
import { onLive } from './live.ts';

/** Limit of rows for a list that is read as a whole (`isWhole`), so that it fits into the memory of a browser. */
const ROWS_MAX = 10_000;
/** Lists are read again at most this often, however many resources appear. */
const REREAD_MS = 1_000;

export interface Resource<T> {
  /** The resource as it was last read; undefined before the first successful read. */
  data: ReadonlySignal<T | undefined>;
  /** Why the last read failed; undefined if it succeeded. After a failure, `data` keeps the value of the read before. */
  error: ReadonlySignal<ApiError | undefined>;
  reload(): Promise<void>;
}

interface ResourceOptions {
  /** Families of events after which the resource is read again, like `instance`. With an id, only the events of that id count. */
  on?: readonly { type: string; id?: string }[];
  /** Period in which the resource is read again while the page is visible. */
  everyMs?: number;
}

/** Reads a path while the component is shown. An undefined path reads nothing. */
export function useResource<T>(path: string | undefined, { on = [], everyMs }: ResourceOptions = {}): Resource<T> {
  const resource = useMemo(() => openResource<T>(path), [path]);
  useEffect(() => {
    if (path === undefined) return undefined;
    void resource.reload();
    const reread = spaced(() => void resource.reload());
    const stopLive = onLive((event) => {
      if (event === 'resync') return reread.soon();
      const isMine = on.some(
        ({ type, id }) => event.resource_type === type && (id === undefined || event.resource_id === id),
      );
      if (isMine) reread.soon();
    });
    const stopTimer = everyMs === undefined ? undefined : whileVisible(everyMs, () => void resource.reload());
    return () => {
      stopLive();
      stopTimer?.();
      reread.stop();
    };
  }, [resource, everyMs]);
  return resource;
}

function openResource<T>(path: string | undefined): Resource<T> {
  const data = signal<T | undefined>(undefined);
  const error = signal<ApiError | undefined>(undefined);
  return {
    data,
    error,
    reload: async () => {
      if (path === undefined) return;
      try {
        data.value = await get<T>(path);
        error.value = undefined;
      } catch (failure) {
        error.value = asApiError(failure);
      }
    },
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
  /** Reads the first page again. Events keep the rows of later pages current. A list without events reads all pages again that were read. */
  reload(): Promise<void>;
}

interface ListOptions<T> {
  /** A path with its query, without `cursor`. */
  path: string;
  idOf(row: T): string;
  /** The family of events whose resource is a row, like `instance`; `*`: each event is a row. Without it the list does not follow the stream. */
  type?: string;
  /** If true, all pages are read, up to `ROWS_MAX` rows, so that filters and sums are correct for the whole list. */
  isWhole?: boolean;
}

/** The pages of a list while the component is shown. Rows that are there change in place; new ones make it read the first page again. */
export function useLiveList<T>({ path, idOf, type, isWhole = false }: ListOptions<T>): LiveList<T> {
  const list = useMemo(() => openList<T>({ path, idOf, isWhole, isLive: type !== undefined }), [path]);
  useEffect(() => {
    void list.restart();
    const reread = spaced(() => void list.reload());
    const restart = spaced(() => void list.restart());
    const stopLive = onLive((event) => {
      if (event === 'resync') return restart.soon();
      if (type === '*') return reread.soon();
      if (type === undefined || event.resource_type !== type) return undefined;
      if (!list.change(event.resource_id, event.resource as T | null)) reread.soon();
    });
    return () => {
      stopLive();
      reread.stop();
      restart.stop();
    };
  }, [list]);
  return list;
}

interface OpenList<T> extends LiveList<T> {
  /** Reads all pages again that were read before, because events were missed. */
  restart(): Promise<void>;
  /** Replaces the row, or removes it if `row` is null. False if the list has no row with this id. */
  change(id: string, row: T | null): boolean;
}

interface OpenOptions<T> extends Pick<ListOptions<T>, 'path' | 'idOf'> {
  isWhole: boolean;
  isLive: boolean;
}

function openList<T>({ path, idOf, isWhole, isLive }: OpenOptions<T>): OpenList<T> {
  const rows = signal<readonly Signal<T>[] | undefined>(undefined);
  const error = signal<ApiError | undefined>(undefined);
  const next = signal<string | null>(null);
  const idOfRow = (row: Signal<T>): string => idOf(row.peek());
  /** The rows of the page at `cursor`. Those that are shown are changed in place. Undefined: the API refused it. */
  const read = async (cursor: string | null): Promise<ReadPage<T> | undefined> => {
    const joined = path.includes('?') ? '&' : '?';
    try {
      const page = await get<Page<T>>(cursor === null ? path : `${path}${joined}cursor=${encodeURIComponent(cursor)}`);
      const known = new Map((rows.peek() ?? []).map((row) => [idOfRow(row), row]));
      error.value = undefined;
      // The API answers some short lists as one page without `next_cursor`.
      return { rows: page.data.map((entry) => kept(known.get(idOf(entry)), entry)), next: page.next_cursor ?? null };
    } catch (failure) {
      error.value = asApiError(failure);
      return undefined;
    }
  };
  const show = (shown: readonly Signal<T>[], cursor: string | null): void => {
    rows.value = shown;
    next.value = cursor;
  };
  const more = async (): Promise<void> => {
    const page = next.peek() === null ? undefined : await read(next.peek());
    if (page === undefined) return;
    const before = rows.peek() ?? [];
    const ids = new Set(before.map(idOfRow));
    show([...before, ...page.rows.filter((row) => !ids.has(idOfRow(row)))], page.next);
  };
  const reload = async (): Promise<void> => {
    const page = await read(null);
    if (page === undefined) return;
    const behind = tailOf(rows.peek() ?? [], page.rows);
    show([...page.rows, ...behind], behind.length === 0 ? page.next : next.peek());
  };
  const restart = async (): Promise<void> => {
    const before = rows.peek()?.length ?? 0;
    const page = await read(null);
    if (page === undefined) return;
    show(page.rows, page.next);
    const wanted = isWhole ? ROWS_MAX : before;
    while (next.peek() !== null && error.peek() === undefined && (rows.peek()?.length ?? 0) < wanted) await more();
  };
  return {
    idOf,
    rows,
    error,
    next,
    reload: isLive ? reload : restart,
    more,
    restart,
    change: (id, row) => {
      const found = rows.value?.find((each) => idOfRow(each) === id);
      if (found === undefined) return false;
      if (row !== null) found.value = row;
      else rows.value = rows.value?.filter((each) => each !== found);
      return true;
    },
  };
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

export interface Reads {
  /** Why the last read failed; undefined if it succeeded. */
  error: ApiError | undefined;
  /** Calls `begin` again. */
  reload(): void;
}

/**
 * Repeats a read of several requests while the component is shown. `begin` is called at first and after each change of `facts`, and returns the
 * read. The read is called at once, and then every `everyMs` while the page is visible. If `everyMs` is undefined, it is called only once.
 */
export function useReads(
  begin: (signal: AbortSignal) => () => Promise<void>,
  facts: readonly unknown[],
  everyMs?: number,
): Reads {
  const [error, setError] = useState<ApiError>();
  const [round, setRound] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    const once = begin(stop.signal);
    const read = async (): Promise<void> => {
      try {
        await once();
        setError(undefined);
      } catch (failure) {
        if (!stop.signal.aborted) setError(asApiError(failure));
      }
    };
    void read();
    const stopTimer = everyMs === undefined ? undefined : whileVisible(everyMs, () => void read());
    return () => {
      stop.abort();
      stopTimer?.();
    };
  }, [...facts, everyMs, round]);
  return { error, reload: () => setRound(round + 1) };
}

function asApiError(failure: unknown): ApiError {
  if (failure instanceof ApiError) return failure;
  throw failure;
}

/** `soon` calls `work` after `REREAD_MS`. Calls of `soon` during that time have no further effect. */
function spaced(work: () => void): { soon(): void; stop(): void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return {
    soon: () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        work();
      }, REREAD_MS);
    },
    stop: () => clearTimeout(timer),
  };
}

/** Repeats `work` while the tab is visible. The returned function stops it. */
export function whileVisible(everyMs: number, work: () => void): () => void {
  const timer = setInterval(() => {
    if (document.visibilityState === 'visible') work();
  }, everyMs);
  return () => clearInterval(timer);
}
