// Lists that are paged as in OpenAI's API: the next page begins after the id of the last row.
import { type ReadonlySignal, signal } from '@preact/signals';
import { ApiError, get } from '../core/api.ts';
import { openOrder } from '../core/reading.ts';

interface AfterPage<T> {
  data: readonly T[];
  has_more: boolean;
}

interface OpenAfterList<T> {
  /** All pages that were read, as one. */
  page: ReadonlySignal<AfterPage<T> | undefined>;
  error: ReadonlySignal<ApiError | undefined>;
  more(): Promise<void>;
  /** Reads the first page again. */
  reload(): Promise<void>;
}

/** `path` must have a query. An answer never replaces what was read later, and a page is shown only behind the row that it follows. */
export function openAfterList<T extends { id: string }>(path: string): OpenAfterList<T> {
  const page = signal<AfterPage<T> | undefined>(undefined);
  const error = signal<ApiError | undefined>(undefined);
  const begin = openOrder();
  /** Undefined: the API refused it. The refusal of a read that is out of date is not shown. */
  const read = async (url: string, isNewest: () => boolean): Promise<AfterPage<T> | undefined> => {
    try {
      return await get<AfterPage<T>>(url);
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      if (isNewest()) error.value = failure;
      return undefined;
    }
  };
  const show = (shown: AfterPage<T>): void => {
    page.value = shown;
    error.value = undefined;
  };
  const reload = async (): Promise<void> => {
    const isNewest = begin();
    const first = await read(path, isNewest);
    if (first !== undefined && isNewest()) show(first);
  };
  const more = async (): Promise<void> => {
    const before = page.peek();
    const last = before?.data.at(-1);
    if (before === undefined || last === undefined) return reload();
    const next = await read(`${path}&after=${encodeURIComponent(last.id)}`, () => page.peek() === before);
    if (next === undefined) return undefined;
    if (page.peek() !== before) return more();
    return show({ data: [...before.data, ...next.data], has_more: next.has_more });
  };
  return { page, error, more, reload };
}
