// Prints rows as a plain table for people: the columns of the first row in order, each as wide as its widest value.

/** Limit of list entries in a cell. A key with all scopes would fill several lines. */
const ENTRIES_SHOWN = 3;

/** Limit of characters for a nested value. --json prints all of it. */
const NESTED_CHARS_SHOWN = 100;

/** All rows have the same shape. Nested values are printed as the beginning of their JSON, and missing values as a dash. */
export function tableOf(rows: readonly Record<string, unknown>[]): string {
  const [first] = rows;
  if (first === undefined) return 'none\n';
  const columns = Object.keys(first);
  const cells = [columns, ...rows.map((row) => columns.map((column) => cellOf(row[column])))];
  const widths = columns.map((_, i) => Math.max(...cells.map((line) => line[i]?.length ?? 0)));
  const lines = cells.map((line) => line.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join('  '));
  return `${lines.map((line) => line.trimEnd()).join('\n')}\n`;
}

function cellOf(value: unknown): string {
  if (value === null || value === undefined || value === '') return '-';
  if (Array.isArray(value)) return listText(value);
  if (typeof value === 'string') return value;
  const text = JSON.stringify(value);
  return text.length > NESTED_CHARS_SHOWN ? `${text.slice(0, NESTED_CHARS_SHOWN)}...` : text;
}

function listText(values: readonly unknown[]): string {
  const shown = values.slice(0, ENTRIES_SHOWN).map(cellOf).join(', ');
  return values.length > ENTRIES_SHOWN ? `${shown} and ${values.length - ENTRIES_SHOWN} more` : shown;
}
