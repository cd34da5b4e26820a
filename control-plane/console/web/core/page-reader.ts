// Reads all pages of a list again and again. A long list is read more rarely than a short one.
import type { Page } from '../../../../shared/api/page.ts';
import { PAGE_MAX } from '../../../../shared/limits.ts';
import { get } from './api.ts';

/** Limit of pages that are read, because nobody reads more rows. If there are more, the screen says that the list is cut. */
const PAGES_MAX = 25;
export const WHOLE_ROWS_MAX = PAGES_MAX * PAGE_MAX;
/** However long a list is, it is read again after this time. */
const LONGEST_MS = 60_000;

export interface AllRows<T> {
  rows: readonly T[];
  /** True if there are more rows than were read. */
  isCut: boolean;
}

interface ReaderOptions {
  signal: AbortSignal;
  /** The period in which the returned function is called; undefined: it is called once. */
  everyMs?: number | undefined;
}

/**
 * Returns a function that reads all pages and tells the rows. After a read of many pages it skips some calls: a long list takes no more requests
 * per minute than a list of one page, unless it would then be older than `LONGEST_MS`.
 */
export function openReader<T>(
  path: string,
  { signal, everyMs = LONGEST_MS }: ReaderOptions,
  tell: (all: AllRows<T>) => void,
): () => Promise<void> {
  let skips = 0;
  let isReading = false;
  return async () => {
    if (isReading) return;
    if (skips > 0) {
      skips -= 1;
      return;
    }
    isReading = true;
    try {
      const { pages, ...all } = await readAll<T>(path, signal);
      tell(all);
      skips = Math.min(pages, Math.ceil(LONGEST_MS / everyMs)) - 1;
    } finally {
      isReading = false;
    }
  };
}

async function readAll<T>(path: string, signal: AbortSignal): Promise<AllRows<T> & { pages: number }> {
  const joined = path.includes('?') ? '&' : '?';
  const rows: T[] = [];
  let cursor: string | null = '';
  let pages = 0;
  while (pages < PAGES_MAX && cursor !== null) {
    const after: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const answer: Page<T> = await get<Page<T>>(`${path}${joined}limit=${PAGE_MAX}${after}`, { signal });
    rows.push(...answer.data);
    cursor = answer.next_cursor;
    pages += 1;
  }
  return { rows, isCut: cursor !== null, pages };
}
