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
    await systemd.ready();
    await systemd.alive();
    await systemd.stopping(10_000);
    expect(socket.messages()).toEqual(['READY=1', 'WATCHDOG=1', 'STOPPING=1', 'EXTEND_TIMEOUT_USEC=70000000']);
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
  const nowMs = 1_000_000_000;
  const loop = (name: string, patch: Partial<LoopStatus>): LoopStatus => ({
    name,
    period_ms: 1000,
    running: true,
    runs: 1,
    last_started_ms: nowMs - RUN_MS_MAX,
    last_duration_ms: 1,
    last_success_ms: null,
    last_error: null,
    ...patch,
  });
  test.each([
    ['a run at its bound', {}, []],
    ['a run beyond it', { last_started_ms: nowMs - RUN_MS_MAX - 1 }, ['x']],
    ['a wait after a step of the clock', { last_started_ms: 0, running: false }, []],
    ['a loop that has not run yet', { last_started_ms: null }, []],
  ])('%s', (_, patch, names) => {
    expect(hangingLoops([loop('x', patch)], nowMs)).toEqual(names);
  });
});
