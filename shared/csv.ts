// Writes comma-separated values (RFC 4180) for people who open them in a spreadsheet.
import type { Clock } from './clock.ts';

type Cells = readonly (string | number | null)[];

/** Rows that are written in one turn of the event loop: about a millisecond. */
const ROWS_PER_PIECE = 1_000;

/** One line. Null is an empty cell. */
export function csvLine(cells: Cells): string {
  return `${cells.map(cellOf).join(',')}\r\n`;
}

/** A table in pieces, with turns of the event loop between. */
export async function* csvPieces(rows: Iterable<Cells>, clock: Pick<Clock, 'nextTurn'>): AsyncGenerator<string> {
  let piece: string[] = [];
  for (const row of rows) {
    piece.push(csvLine(row));
    if (piece.length < ROWS_PER_PIECE) continue;
    yield piece.join('');
    piece = [];
    await clock.nextTurn();
  }
  yield piece.join('');
}

/** A spreadsheet runs a text that begins with one of these characters as a formula. */
const FORMULA = /^[=+\-@\t\r]/;
const NUMBER = /^-?\d+(\.\d+)?$/;

function cellOf(value: string | number | null): string {
  const text = value === null ? '' : String(value);
  const safe = FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
