// A table for a list of after-list.ts: its pages, its refusals, and the text for an empty list.
import type { ComponentChildren } from 'preact';
import { Problem } from '../parts/layout.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';
import type { AfterList } from './use-after-list.ts';

interface AfterTableProps<T> {
  caption: string;
  list: AfterList<T>;
  columns: readonly Column<T>[];
  empty: ComponentChildren;
}

export function AfterTable<T>({ caption, list, columns, empty }: AfterTableProps<T>) {
  const { rows, error, hasMore } = list;
  return (
    <>
      {error !== undefined && <Problem error={error} retry={() => void list.reload()} />}
      {rows === undefined && error === undefined && <div class="card pad quiet">Reading…</div>}
      {rows !== undefined && (
        <section class="card" aria-label={caption}>
          {rows.length === 0 ? empty : <RowsTable caption={caption} rows={rows} columns={columns} />}
        </section>
      )}
      {hasMore && (
        <p class="row">
          <button class="btn sm" type="button" onClick={() => void list.more()}>
            Show more
          </button>
        </p>
      )}
    </>
  );
}
