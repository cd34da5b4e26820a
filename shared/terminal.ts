// Text from others on a terminal: a name, a reason or an error must not move the cursor, change colours, begin a line of its own, or turn the
// order of the words beside it around.
import { stripVTControlCharacters } from 'node:util';

/** The text in one line, without control sequences for terminals and without marks that change its direction. */
export function printable(text: string): string {
  return stripVTControlCharacters(text)
    .replaceAll(/\p{Cc}/gu, ' ')
    .replaceAll(/\p{Bidi_Control}/gu, '');
}
