// Text from others in one line, without what a terminal obeys.
import { expect, test } from 'vitest';
import { label } from '../../shared/api/label.ts';
import { printable } from '../../shared/terminal.ts';

test.each([
  ['plain text, also in other scripts', 'train 訓練 🚂', 'train 訓練 🚂'],
  ['a screen that is cleared', 'a\u001b[2J\u001b[Hb', 'ab'],
  ['a title that is set', 'a\u001b]0;owned\u0007b', 'ab'],
  ['colours of one byte', 'a\u009b31mb', 'ab'],
  ['new lines, returns and tabs', 'a\nb\r\nc\td', 'a b  c d'],
  ['an escape of which the rest is missing', 'a\u001b', 'a '],
])('%s', (_, text, shown) => expect(printable(text)).toBe(shown));

const CODES = [0x61c, 0x200e, 0x200f, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069];
const MARKS = CODES.map((code) => [code.toString(16), String.fromCodePoint(code)] as const);
test.each(MARKS)('the mark U+%s does not turn the words beside it around, and no name has it', (_, mark) => {
  expect(printable(`a${mark}b`)).toBe('ab');
  expect(label(9).safeParse(`a${mark}b`).success).toBe(false);
});

// Neighbours of the marks, and what scripts and pictures need.
test.each([
  '\u061b',
  '\u061d',
  '\u200d',
  '\u2010',
  '\u202f',
  '\u2065',
  '\u206a',
  'שלום עולם',
  'مرحبا',
  '👩‍🚀',
  'می‌خواهم',
])('%j is a part of a name, and is printed as it is', (part) => {
  expect(printable(part)).toBe(part);
  expect(label(10).safeParse(`a${part}`).success).toBe(true);
});
