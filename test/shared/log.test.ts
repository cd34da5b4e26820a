// Logs of the daemons: Node's own warnings in them, and the messages of errors with causes.
import { expect, test } from 'vitest';
import { throwAll } from '../../shared/errors.ts';
import { createLog, logWarnings } from '../../shared/log.ts';

test('warnings of Node are lines of the log, and nothing else prints them', () => {
  const before = process.listeners('warning');
  const lines: string[] = [];
  try {
    logWarnings(createLog('test', 'info', { write: (line) => void lines.push(line) }));
    expect(process.listenerCount('warning')).toBe(1);
    process.emit('warning', Object.assign(new Error('11 close listeners'), { name: 'MaxListenersExceededWarning' }));
  } finally {
    process.removeAllListeners('warning');
    for (const listener of before) process.on('warning', listener);
  }
  expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
    { level: 40, msg: 'Node warns', warning: 'MaxListenersExceededWarning', err: { message: '11 close listeners' } },
  ]);
});

const thrownBy = (failures: unknown[]): unknown => {
  try {
    throwAll(failures);
  } catch (error) {
    return error;
  }
  return undefined;
};

test.each([
  [
    'a cause that the message names',
    new Error('it is away: refused', { cause: new Error('refused') }),
    'it is away: refused',
  ],
  ['a cause that it does not name', new Error('it is away', { cause: new Error('refused') }), 'it is away: refused'],
  ['several failures', thrownBy([new Error('a'), new Error('b'), new Error('a')]), 'a; b'],
  [
    'what Node joins without a message',
    new AggregateError([new Error('::1 refused'), new Error('refused')]),
    '::1 refused; refused',
  ],
])('the message of %s is whole, and nothing in it is said twice', (_, err, message) => {
  const lines: string[] = [];
  createLog('test', 'info', { write: (line) => void lines.push(line) }).error({ err }, 'it failed');
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({ err: { message, stack: expect.any(String) as string } });
});
