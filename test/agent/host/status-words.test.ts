// The output of `svc-agent status` for a healthy agent and for one with faults.
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, onTestFinished, test } from 'vitest';
import { openStatusSocket, type AgentStatus, askStatus, statusWords } from '../../../agent/host/status-socket.ts';
import { withoutRoot } from '../../kit/without-root.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const dir = mkdtempSync(join(tmpdir(), 'status-'));
afterAll(() => rmSync(dir, { recursive: true }));

const WELL: AgentStatus = {
  version: '0.1.0',
  machine_id: 'm-1',
  url: 'https://gpu.example.com',
  link: { connected: true, last_end: 'code 1006' },
  loops: [],
  gpus: 8,
  gpu_error: '',
  gpu_faults: [],
  engine_version: '28.2.2',
  containers_doubt: '',
  network_fence: 'nftables',
  fence_error: '',
  holders_lack: '',
  disk_error: '',
};

test('a healthy agent is reported as well', () => {
  expect(statusWords(WELL)).toEqual({
    lines: [
      'agent: 0.1.0',
      'machine: m-1 of https://gpu.example.com',
      'link: up',
      'gpus: 8',
      'docker engine: 28.2.2',
      'network fence: nftables',
      'holders: confined',
    ],
    isWell: true,
  });
});

test('a host that cannot confine holders wholly is reported so, and may be rented out', () => {
  const { lines, isWell } = statusWords({ ...WELL, holders_lack: 'no filter of system calls' });
  expect(lines).toContain('holders: not wholly confined: no filter of system calls');
  expect(isWell).toBe(true);
});

const loop = {
  name: 'disk',
  period_ms: 1,
  running: false,
  runs: 1,
  last_started_ms: 1,
  last_duration_ms: 1,
  last_success_ms: null,
  last_error: 'ENOSPC',
};
const FAULTS: [Partial<AgentStatus>, string][] = [
  [{ link: { connected: false, last_end: 'code 1006' } }, 'link: down, code 1006'],
  [{ link: { connected: false, last_end: null } }, 'link: down'],
  [{ gpus: 0 }, 'gpus: 0'],
  [{ gpus: 0, gpu_error: 'mismatch' }, 'gpus: not known: mismatch'],
  [
    { gpu_faults: [{ uuid: 'GPU-1', severity: 'broken', detail: 'Xid 79: it has fallen off the bus' }] },
    'gpu GPU-1 is broken: Xid 79: it has fallen off the bus',
  ],
  [{ engine_version: '' }, 'docker engine: does not answer'],
  [{ containers_doubt: 'the engine lists none' }, 'containers: the engine lists none'],
  [{ disk_error: 'the disk does not answer' }, 'state folder: the disk does not answer'],
  [{ fence_error: 'nft is missing' }, 'network fence: nftables, does not stand: nft is missing'],
  [{ loops: [loop] }, 'loop disk fails: ENOSPC'],
];

test.each(FAULTS)('an agent with %o is not reported as well', (fault, line) => {
  const { lines, isWell } = statusWords({ ...WELL, ...fault });
  expect(lines).toContain(line);
  expect(isWell).toBe(false);
});

test('the status is read over the socket; an agent that is starting and a missing one give different errors', async () => {
  await expect(askStatus(dir)).rejects.toThrow(`no agent answers at ${join(dir, 'agent.sock')}: start it`);
  let status: AgentStatus | undefined;
  const socket = await openStatusSocket(dir, () => status);
  await expect(askStatus(dir)).rejects.toThrow('the agent is starting');
  status = WELL;
  expect(await askStatus(dir)).toEqual(WELL);
  await socket.close();
});

test.each([
  ['never answers', ''],
  ['stops in the middle of its answer', 'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"version":'],
])('an agent that %s is given up after ten seconds, with the advice to restart it', async (_, start) => {
  const stateDir = mkdtempSync(join(dir, 's-'));
  const hung = createServer((socket) => socket.once('data', () => socket.write(start)));
  hung.listen(join(stateDir, 'agent.sock'));
  await once(hung, 'listening');
  onTestFinished(() => void hung.close());
  const clock = virtualClock();
  const said = askStatus(stateDir, clock).catch((error: Error) => error.message);
  await once(hung, 'connection');
  await clock.advance(10_000);
  expect(await said).toContain(
    `${join(stateDir, 'agent.sock')} has not answered for 10 seconds: it hangs or is stopped, so restart it`,
  );
});

test('somebody who is not root is sent to root, and not to start an agent that runs', async () => {
  const stateDir = mkdtempSync(join(dir, 's-'));
  const socket = await openStatusSocket(stateDir, () => WELL);
  onTestFinished(() => socket.close());
  chmodSync(stateDir, 0);
  onTestFinished(() => chmodSync(stateDir, 0o700));
  await expect(withoutRoot(() => askStatus(stateDir))).rejects.toThrow(
    `only root may ask the agent at ${join(stateDir, 'agent.sock')}: run this command as root`,
  );
});
