// Rows as a plain table for people: columns in the order of the first row, padded to their widest value.

/** Rows of one shape; nested values are shown as JSON, null as a dash. */
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
  if (value === null || value === undefined) return '-';
  if (Array.isArray(value)) return value.map(cellOf).join(', ');
  return typeof value === 'string' ? value : JSON.stringify(value);
}
