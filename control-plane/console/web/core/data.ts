// The data of screens: one resource, or the pages of a list. Both follow the live stream while their component is shown.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { type ApiError, asApiError } from './api.ts';
import { onLive } from './live.ts';
import { type LiveList, openList, openResource, type PagesOptions, type Resource } from './reading.ts';

/** Lists are read again at most this often, however many resources appear. */
const REREAD_MS = 1_000;

interface ResourceOptions {
  /** Families of events after which the resource is read again, like `instance`. With an id, only the events of that id count. */
  on?: readonly { type: string; id?: string }[];
  /** Period in which the resource is read again while the page is visible. */
  everyMs?: number;
}

/** Reads a path while the component is shown. An undefined path reads nothing. A function must stay the same from one drawing to the next. */
export function useResource<T>(
  path: string | (() => string) | undefined,
  { on = [], everyMs }: ResourceOptions = {},
): Resource<T> {
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

interface ListOptions<T> extends PagesOptions<T> {
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
