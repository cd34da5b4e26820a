// Reads the usage of a window, page by page, and again once a minute.
import { useState } from 'preact/hooks';
import type { UsageRow } from '../../../../shared/api/billing.ts';
import type { Page } from '../../../../shared/api/page.ts';
import { get } from '../core/api.ts';
import { type Reads, useReads } from '../core/data.ts';

const PAGE = 200;
/** Limit of pages that are read, because nobody reads more rows. If there are more, the screen says that the list is cut. */
const PAGES_MAX = 25;
const REREAD_MS = 60_000;

export interface Usage extends Reads {
  rows: readonly UsageRow[] | undefined;
  /** True if there are more rows than were read. */
  isCut: boolean;
}

/** All pages of a window, once a minute while the page is visible. */
export function useUsage(path: string): Usage {
  const [found, setFound] = useState<{ path: string } & Pick<Usage, 'rows' | 'isCut'>>();
  const { error, reload } = useReads(
    (signal) => async () => setFound({ path, ...(await readAll(path, signal)) }),
    [path],
    REREAD_MS,
  );
  const isOfPath = found?.path === path;
  return {
    rows: isOfPath ? found.rows : undefined,
    isCut: isOfPath && found.isCut,
    error,
    reload,
  };
}

async function readAll(path: string, signal: AbortSignal): Promise<{ rows: UsageRow[]; isCut: boolean }> {
  const rows: UsageRow[] = [];
  let cursor: string | null = '';
  for (let page = 0; page < PAGES_MAX && cursor !== null; page += 1) {
    const after: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const answer: Page<UsageRow> = await get<Page<UsageRow>>(`${path}&limit=${PAGE}${after}`, { signal });
    rows.push(...answer.data);
    cursor = answer.next_cursor;
  }
  return { rows, isCut: cursor !== null };
}
