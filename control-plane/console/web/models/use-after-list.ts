// A list of after-list.ts in a screen, which reads it when it is shown and after events.
import { useEffect, useMemo } from 'preact/hooks';
import type { ApiError } from '../core/api.ts';
import { onLive } from '../core/live.ts';
import { openAfterList } from './after-list.ts';

export interface AfterList<T> {
  /** Undefined until the first page is there. */
  rows: readonly T[] | undefined;
  error: ApiError | undefined;
  hasMore: boolean;
  more(): Promise<void>;
  /** Reads the first page again. */
  reload(): Promise<void>;
}

/** If `type` is set, the list is read again after each event of that family. */
export function useAfterList<T extends { id: string }>(path: string, type?: string): AfterList<T> {
  const list = useMemo(() => openAfterList<T>(path), [path]);
  useEffect(() => {
    void list.reload();
    return onLive((event) => {
      if (event === 'resync' || event.resource_type === type) void list.reload();
    });
  }, [list, type]);
  return {
    rows: list.page.value?.data,
    error: list.error.value,
    hasMore: list.page.value?.has_more ?? false,
    more: list.more,
    reload: list.reload,
  };
}
