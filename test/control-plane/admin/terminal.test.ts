// Reasons of hosts and names of machines that an operator reads as JSON: the document is the same, and a terminal obeys nothing in it.
import { Command } from 'commander';
import { expect, test } from 'vitest';
import { addOperatorCommands } from '../../../control-plane/admin/commands.ts';

const REASON = 'gone\u001b[2J\u009b31m\u007f\u202eevil';

test.each([
  ['a list', ['instance', 'list'], { data: [{ id: 'i-1', status_reason: REASON }], next_cursor: null }],
  ['an answer of several parts', ['outage', 'show', 'x'], { id: 'x', cause: REASON, rentals: [{ reason: REASON }] }],
])('%s has no control characters as JSON, and means the same', async (_what, words, answer) => {
  const printed: string[] = [];
  const program = new Command();
  addOperatorCommands(program, {
    ask: async () => ({ status: 200, body: JSON.stringify(answer) }),
    backup: async () => ({}),
    readFile: () => '',
    print: (text) => void printed.push(text),
    now: () => 0,
  });
  await program.parseAsync(['admin', ...words, '--json'], { from: 'user' });
  const [line = ''] = printed;
  expect(line.trimEnd()).not.toMatch(/\p{Cc}|\p{Bidi_Control}/u);
  expect(JSON.parse(line)).toEqual(answer);
});
