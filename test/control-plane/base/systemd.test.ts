// What the process reports to systemd, with the real program and a real socket, and when it stops reporting that it is alive.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { hangingLoops, openSystemd, RUN_MS_MAX } from '../../../control-plane/base/systemd/systemd.ts';
import { createLog } from '../../../shared/log.ts';
import type { LoopStatus } from '../../../shared/loop.ts';
import { hasSystemd, type NotifySocket, openNotifySocket } from '../../kit/notify-socket.ts';

const silent = { log: createLog('test', 'silent') };

describe('messages to systemd', () => {
  let socket: NotifySocket;
  beforeEach(async () => {
    socket = await openNotifySocket();
  });
  afterEach(() => socket.close());

  test.skipIf(!hasSystemd)('arrive in order, each before the next is begun', async () => {
    const manager = { notifySocket: socket.path, watchdogMs: 60_000 };
    const systemd = openSystemd(manager, silent);
    expect(systemd.alivePeriodMs).toBe(20_000);
    await systemd.standsBy();
    await systemd.ready();
    await systemd.alive();
    await systemd.stopping(10_000);
    expect(socket.messages()).toEqual([
      'READY=1',
      'STATUS=stands by: another control plane serves on this database',
      'READY=1',
      'STATUS=serves',
      'WATCHDOG=1',
      'STOPPING=1',
      'EXTEND_TIMEOUT_USEC=70000000',
    ]);
  });
  test('are not sent if no service manager asks for them', async () => {
    const systemd = openSystemd(undefined, silent);
    expect(systemd.alivePeriodMs).toBeUndefined();
    await systemd.ready();
    expect(socket.messages()).toEqual([]);
  });
});

test('are logged if the service manager cannot be reached, and the process goes on', async () => {
  const lines: string[] = [];
  const log = createLog('test', 'error', { write: (line: string) => void lines.push(line) });
  await openSystemd({ notifySocket: '/nowhere/socket', watchdogMs: undefined }, { log }).ready();
  expect(lines.join('')).toContain('a message to systemd could not be sent');
});

describe('a loop hangs', () => {
  test.each([
    ['a run at its bound', RUN_MS_MAX, []],
    ['a run beyond it', RUN_MS_MAX + 1, ['x']],
    ['a wait for the next period', null, []],
  ])('%s', (_, runningMs, names) => {
    const status = { name: 'x' } as LoopStatus;
    expect(hangingLoops([{ status: () => status, runningMs: () => runningMs }])).toEqual(names);
  });
});
