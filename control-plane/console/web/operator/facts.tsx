// Shows one row of the operator's routes as a list of its members, and several rows as a table.
import type { ComponentChildren } from 'preact';
import { Link } from 'wouter-preact';
import { capital, cents, time } from '../core/format.ts';
import { Badge, type Tone } from '../parts/layout.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';
import { type Row, textOf } from './verbs.ts';

/** All members of the row. A member without a value is shown as a dash. */
export function FactsOf({ row }: { row: Row }) {
  return (
    <dl class="kv pad">
      {Object.entries(row).map(([name, value]) => (
        <>
          <dt>{titleOf(name)}</dt>
          <dd>
            <Fact name={name} value={value} />
          </dd>
        </>
      ))}
    </dl>
  );
}

interface FactsTableProps {
  caption: string;
  rows: readonly Row[];
  columns: readonly string[];
  /** A column of buttons. */
  decide?: Column<Row>;
  /** What identifies a row. Needed for `decide`. */
  idOf?: (row: Row) => string;
  /** Text in place of the table if there is no row. */
  children: ComponentChildren;
}

/** The first column names the row. The third and later columns are hidden on a narrow page. */
export function FactsTable({ caption, rows, columns, decide, idOf, children }: FactsTableProps) {
  if (rows.length === 0) return <p class="pad quiet">{children}</p>;
  const shown = [...factColumns(columns), ...(decide ? [decide] : [])];
  return <RowsTable caption={caption} rows={rows} columns={shown} idOf={idOf} />;
}

/** `hrefOf`: the address to which the first column links. */
export function factColumns(columns: readonly string[], hrefOf?: (row: Row) => string): Column<Row>[] {
  return columns.map((name, index) => ({
    title: titleOf(name),
    class: index < 2 ? '' : 'w',
    cell: (row) => {
      const text = <Fact name={name} value={row[name]} />;
      return index === 0 && hrefOf !== undefined ? <Link href={hrefOf(row)}>{text}</Link> : text;
    },
  }));
}

/** The title of a column. The ending `_cents` is removed, because the values are written as dollars. */
const titleOf = (name: string): string => capital(name.replace(/_cents$/, ''));

/** States in which an operator has something to do, or something has ended badly. */
const TONES: Record<string, Tone> = {
  held: 'warn',
  held_screening: 'warn',
  expired_received: 'warn',
  due: 'warn',
  failed: 'bad',
  failed_screening: 'bad',
  suspended: 'bad',
};

/** Members whose values are words. They are not broken inside, nor are numbers. */
const WORDS: ReadonlySet<string> = new Set(['status', 'state', 'role', 'name']);

/** The value of a member: times are written short, and the states of TONES have a colour. */
function Fact({ name, value }: { name: string; value: unknown }) {
  const text = textOf(value);
  if (text === '') return <span class="quiet">–</span>;
  if (/(^|_)(at|since)$|^(from|until)$/.test(name) && !Number.isNaN(Date.parse(text))) {
    return (
      <time dateTime={text} title={text}>
        {time(text)}
      </time>
    );
  }
  if (typeof value === 'number' && name.endsWith('_cents')) return <span>{cents(value)}</span>;
  if (typeof value === 'boolean') return <span>{value ? 'yes' : 'no'}</span>;
  const tone = name === 'status' || name === 'state' ? TONES[text] : undefined;
  if (tone !== undefined) return <Badge tone={tone}>{text}</Badge>;
  const isWhole = WORDS.has(name) || /^-?\d+(\.\d+)?$/.test(text);
  return (
    <span class={isWhole ? '' : 'brk'}>
      {(text.includes(' ') ? [text] : text.split(/(?<=:)/)).map((part, index) => (
        <>
          {index > 0 && <wbr />}
          {part}
        </>
      ))}
    </span>
  );
}
