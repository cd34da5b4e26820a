// Text from others on a terminal: a name, a reason or an error must not move the cursor, change colours or begin a line of its own.
import { stripVTControlCharacters } from 'node:util';

/** The text in one line, without control sequences for terminals. */
export function printable(text: string): string {
  return stripVTControlCharacters(text).replaceAll(/\p{Cc}/gu, ' ');
}
