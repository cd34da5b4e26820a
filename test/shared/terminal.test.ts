// Text from others in one line, without what a terminal obeys.
import { expect, test } from 'vitest';
import { printable } from '../../shared/terminal.ts';

test.each([
  ['plain text, also in other scripts', 'train 訓練 🚂', 'train 訓練 🚂'],
  ['a screen that is cleared', 'a\u001b[2J\u001b[Hb', 'ab'],
  ['a title that is set', 'a\u001b]0;owned\u0007b', 'ab'],
  ['colours of one byte', 'a\u009b31mb', 'ab'],
  ['new lines, returns and tabs', 'a\nb\r\nc\td', 'a b  c d'],
  ['an escape of which the rest is missing', 'a\u001b', 'a '],
])('%s', (_, text, shown) => expect(printable(text)).toBe(shown));
