// Lists that are paged as in OpenAI's API: the next page begins after the id of the last row.
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, get } from '../core/api.ts';
import { onLive } from '../core/live.ts';

interface AfterPage<T> {
  data: T[];
  has_more: boolean;
}

export interface AfterList<T> {
  /** Undefined until the first page is there. */
  rows: readonly T[] | undefined;
  error: ApiError | undefined;
  hasMore: boolean;
  more(): Promise<void>;
  /** Reads the first page again. */
  reload(): Promise<void>;
}

/** `path` must have a query. If `type` is set, the list is read again after each event of that family. */
export function useAfterList<T extends { id: string }>(path: string, type?: string): AfterList<T> {
  const [page, setPage] = useState<AfterPage<T>>();
  const [error, setError] = useState<ApiError>();
  const read = async (before: readonly T[]): Promise<void> => {
    const last = before.at(-1);
    try {
      const next = await get<AfterPage<T>>(last === undefined ? path : `${path}&after=${encodeURIComponent(last.id)}`);
      setPage({ data: [...before, ...next.data], has_more: next.has_more });
      setError(undefined);
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      setError(failure);
    }
  };
  const reload = (): Promise<void> => read([]);
  const newest = useRef(reload);
  newest.current = reload;
  useEffect(() => {
    void newest.current();
    return onLive((event) => {
      if (event === 'resync' || event.resource_type === type) void newest.current();
    });
  }, [path, type]);
  return {
    rows: page?.data,
    error,
    hasMore: page?.has_more ?? false,
    more: () => read(page?.data ?? []),
    reload,
  };
}
