// Logs of the daemons: Node's own warnings in them.
import { expect, test } from 'vitest';
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
