// A list of the API as a table, with its pages, its refusals, and a text for an empty list. A change redraws only its row.
import type { ReadonlySignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { count } from '../core/format.ts';
import type { LiveList } from '../core/reading.ts';
import { Problem } from './layout.tsx';

/** A browser draws this many rows at once without a pause. */
const ROWS_STEP = 100;

export interface Column<T> {
  title: string;
  /**
   * `w`: hidden on a narrow page, until the person asks for all columns. `x`: hidden in a narrow table. `num`: numbers, aligned to the end of the
   * cell.
   */
  class?: string;
  cell(row: T): ComponentChildren;
}

interface LiveTableProps<T> {
  caption: string;
  list: LiveList<T>;
  columns: readonly Column<T>[];
  /** Shown in place of the table if there is no row. */
  empty: ComponentChildren;
  /** True for rows that are shown. If left out, all rows are shown. */
  only?: (row: T) => boolean;
  footer?: ComponentChildren;
}

/** The first column names the row. */
export function LiveTable<T>({ caption, list, columns, empty, only, footer }: LiveTableProps<T>) {
  const [limit, setLimit] = useState(ROWS_STEP);
  const rows = list.rows.value;
  if (rows === undefined) {
    if (list.error.value === undefined) return <div class="card pad quiet">Reading…</div>;
    return <Problem error={list.error.value} retry={() => void list.reload()} />;
  }
  const shown = only === undefined ? rows : rows.filter((row) => only(row.value));
  const more = (): void => {
    setLimit(limit + ROWS_STEP);
    if (shown.length <= limit + ROWS_STEP) void list.more();
  };
  return (
    <>
      {list.error.value !== undefined && <Problem error={list.error.value} retry={() => void list.reload()} />}
      <section class="card" aria-label={caption}>
        {shown.length === 0 ? (
          empty
        ) : (
          <Table caption={caption} columns={columns} footer={footer}>
            {shown.slice(0, limit).map((row) => (
              <Row key={list.idOf(row.peek())} row={row} columns={columns} />
            ))}
          </Table>
        )}
      </section>
      {(shown.length > limit || list.next.value !== null) && (
        <ShowMore limit={limit} length={shown.length} isAll={list.next.value === null} more={more} />
      )}
    </>
  );
}

interface ShowMoreProps {
  limit: number;
  /** How many rows were read. */
  length: number;
  /** False if the API has further rows. */
  isAll: boolean;
  more(): void;
}

function ShowMore({ limit, length, isAll, more }: ShowMoreProps) {
  return (
    <p class="row">
      <button class="btn sm" type="button" onClick={more}>
        Show more
      </button>
      <span class="small quiet">
        {count(Math.min(limit, length))} of {count(length)}
        {!isAll && ', and more that are not read yet'}
      </span>
    </p>
  );
}

function Row<T>({ row, columns }: { row: ReadonlySignal<T>; columns: readonly Column<T>[] }) {
  return <Cells row={row.value} columns={columns} />;
}

/** A table of rows that the screen already has, like the segments of a bill. */
export function RowsTable<T>({ caption, rows, columns, idOf, footer }: RowsTableProps<T>) {
  return (
    <Table caption={caption} columns={columns} footer={footer}>
      {rows.map((row, index) => (
        <Cells key={idOf?.(row) ?? index} row={row} columns={columns} />
      ))}
    </Table>
  );
}

/** A table of rows that the screen already has, and that may be thousands. It draws a part of them. */
export function LongTable<T>({ rows, ...table }: RowsTableProps<T>) {
  const [limit, setLimit] = useState(ROWS_STEP);
  return (
    <>
      <RowsTable {...table} rows={rows.slice(0, limit)} />
      {rows.length > limit && (
        <div class="pad">
          <ShowMore limit={limit} length={rows.length} isAll more={() => setLimit(limit + ROWS_STEP)} />
        </div>
      )}
    </>
  );
}

interface RowsTableProps<T> {
  caption: string;
  rows: readonly T[];
  columns: readonly Column<T>[];
  /** Needed if a cell has state, like a dialog or a refusal: the state then stays with its row when rows before it come or go. */
  idOf?: ((row: T) => string) | undefined;
  footer?: ComponentChildren;
}

interface TableProps<T> {
  caption: string;
  columns: readonly Column<T>[];
  footer: ComponentChildren;
  children: ComponentChildren;
}

function Table<T>({ caption, columns, footer, children }: TableProps<T>) {
  const [isWhole, setWhole] = useState(false);
  return (
    <>
      {columns.some(({ class: names = '' }) => names.split(' ').includes('w')) && (
        <p class="n pad">
          <button class="btn sm" type="button" aria-pressed={isWhole} onClick={() => setWhole(!isWhole)}>
            All columns
          </button>
        </p>
      )}
      <div class={isWhole ? 'scroll whole' : 'scroll'} tabIndex={0} role="region" aria-label={`${caption}, table`}>
        <table>
          <caption class="sr">{caption}</caption>
          <thead>
            <tr>
              {columns.map((column) => (
                <th key={column.title} scope="col" class={column.class}>
                  {column.title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>{children}</tbody>
          {footer !== undefined && <tfoot>{footer}</tfoot>}
        </table>
      </div>
    </>
  );
}

function Cells<T>({ row, columns }: { row: T; columns: readonly Column<T>[] }) {
  return (
    <tr>
      {columns.map((column, index) =>
        index === 0 ? (
          <th key={column.title} scope="row">
            {column.cell(row)}
          </th>
        ) : (
          <td key={column.title} class={column.class}>
            {column.cell(row)}
          </td>
        ),
      )}
    </tr>
  );
}
