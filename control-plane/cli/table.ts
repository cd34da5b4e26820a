// Tables for people: aligned columns, or one line for each member of a single document.
import { stripVTControlCharacters } from 'node:util';
import { z } from 'zod';

type Row = Record<string, unknown>;

/** `isOne`: the only row is shown as a list of its members. */
export function tableOf(rows: readonly Row[], columns: readonly string[], { isOne }: { isOne: boolean }): string {
  const [first] = rows;
  if (isOne && first !== undefined) return linesOf(first, columns);
  if (rows.length === 0) return 'none\n';
  const cells = rows.map((row) => columns.map((column) => cellOf(row, column)));
  const widths = columns.map((column, i) => Math.max(column.length, ...cells.map((line) => line[i]?.length ?? 0)));
  const line = (texts: readonly string[]): string =>
    `${texts
      .map((text, i) => text.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd()}\n`;
  return [columns.map((column) => column.toUpperCase()), ...cells].map(line).join('');
}

function linesOf(row: Row, columns: readonly string[]): string {
  const names = columns.filter((column) => cellOf(row, column) !== '');
  const width = Math.max(0, ...names.map((name) => name.length));
  return names.map((name) => `${name.padEnd(width)}  ${cellOf(row, name)}\n`).join('');
}

/** The text of the member at `path`, like `connection.hostname`. Control sequences for terminals are removed. */
function cellOf(row: Row, path: string): string {
  let value: unknown = row;
  for (const name of path.split('.')) value = Reflect.get(Object(value), name) as unknown;
  if (value === null || value === undefined) return '';
  const texts = z.array(z.string()).safeParse(value).data;
  const text = typeof value === 'string' ? value : (texts?.join(',') ?? JSON.stringify(value));
  return stripVTControlCharacters(text).replaceAll(/\p{Cc}/gu, ' ');
}
