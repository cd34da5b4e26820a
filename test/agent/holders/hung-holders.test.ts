// Holders that hang: the kernel accepts connections for them, and they say nothing. A stopped process stands for one that computes for ever.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type HolderProcesses, openHolders } from '../../../agent/holders/holders.ts';
import { sendJson } from '../../../agent/wire/frames.ts';
import { workloadPaths } from '../../../agent/wire/workload-folder.ts';
import { createLog } from '../../../shared/log.ts';
import { eventually } from '../../kit/processes.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';

const ID = 'wl';
const STATUS = { kind: 'status', host_key: 'ssh-ed25519 KEY', guest: false, main_exit: null };
/** A process that serves the holder's socket. It sends its third argument, which is in hexadecimal, to everybody who connects. */
const PROGRAM = `
const [path, bytes] = process.argv.slice(1);
require('net').createServer((socket) => {
  socket.on('error', () => {}).write(Buffer.from(bytes, 'hex'));
}).listen(path, () => console.log('serves'));
`;

let dir: string;
let folder: string;
let clock: VirtualClock;
let holders: HolderProcesses;
let startHolder: () => Promise<number>;
let started: number;
let told: string[];
let processes: ChildProcess[];
let servers: Server[];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'hung-'));
  folder = join(dir, 'workloads', ID);
  mkdirSync(join(folder, 'run'), { recursive: true });
  clock = virtualClock(1_000_000);
  [told, processes, servers, started] = [[], [], [], 0];
  startHolder = playHolder;
  holders = openHolders(
    {
      clock,
      log: createLog('test', 'silent'),
      stateDir: dir,
      bundle: { folder: dir, entrypoint: [], holderProgram: '', node: [] },
      startHolder: () => {
        started += 1;
        return startHolder();
      },
      tell: ({ state }) => void told.push(state),
    },
    () => undefined,
  );
});
afterEach(async () => {
  await holders.leave();
  for (const server of servers) server.close();
  for (const child of processes) child.kill('SIGKILL');
  rmSync(dir, { recursive: true });
});

/** A holder that works, in this process. */
async function playHolder(): Promise<number> {
  const { holderSocket } = workloadPaths(folder);
  rmSync(holderSocket, { force: true });
  const server = createServer((socket) => {
    sendJson(socket, STATUS);
    socket.on('error', () => undefined).resume();
  }).listen(holderSocket);
  servers.push(server);
  await once(server, 'listening');
  return 1;
}

/** A process that serves the socket of the holder. */
async function startProcess(bytes: string): Promise<ChildProcess> {
  const { holderSocket, holderPid } = workloadPaths(folder);
  rmSync(holderSocket, { force: true });
  const argv = ['-e', PROGRAM, holderSocket, bytes, folder];
  const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'inherit'] });
  processes.push(child);
  if (child.stdout !== null) await once(child.stdout, 'data');
  writeFileSync(holderPid, String(child.pid));
  return child;
}

async function startHung(): Promise<ChildProcess> {
  const child = await startProcess('');
  child.kill('SIGSTOP');
  return child;
}

/** A holder that has sent its status, and hangs since then. */
async function hangAfterStatus(): Promise<ChildProcess> {
  const payload = Buffer.from(JSON.stringify(STATUS));
  const header = Buffer.alloc(5);
  header.writeUInt32BE(payload.length, 1);
  const child = await startProcess(Buffer.concat([header, payload]).toString('hex'));
  await holders.ensure(ID);
  expect(isUp()).toBe(true);
  child.kill('SIGSTOP');
  return child;
}

const isUp = (): boolean | undefined => holders.statuses().get(ID)?.up;

/** Moves the time on, five times as fast as it passes, until the work is over. */
async function inTime<T>(work: Promise<T>): Promise<T> {
  let isOver = false;
  void work.then(
    () => (isOver = true),
    () => (isOver = true),
  );
  while (!isOver) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    clock.jump(25);
  }
  return work;
}

/** The next deadline is set. */
async function deadline(): Promise<void> {
  const before = clock.waiting();
  await eventually('a deadline', 5_000, async () => clock.waiting() > before || undefined);
}

async function isKilled(child: ChildProcess): Promise<void> {
  await eventually('the end of the process', 5_000, async () => child.signalCode === 'SIGKILL' || undefined);
}

test('a holder that sends no status within five seconds is killed and replaced, and the control plane is told', async () => {
  const hung = await startHung();
  const ensured = holders.ensure(ID);
  await deadline();
  clock.jump(4_999);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect([started, told, isUp()]).toEqual([0, [], false]);
  clock.jump(1);
  await inTime(ensured);
  await isKilled(hung);
  expect([started, told, isUp()]).toEqual([1, ['silent', 'replaced'], true]);
});

test.each(['a repair', 'the check'])(
  'the start fails if also the new holder sends no status, and %s replaces that one',
  async (how) => {
    await startHung();
    startHolder = async () => (await startHung()).pid ?? 0;
    await expect(inTime(holders.ensure(ID))).rejects.toThrow('the holder did not answer the agent');
    expect([started, told, isUp()]).toEqual([1, ['silent'], false]);
    startHolder = playHolder;
    if (how === 'a repair') await inTime(holders.replace(ID, 'it does not answer the control plane'));
    else await inTime(eventually('a holder that works', 10_000, async () => isUp() === true || undefined));
    expect([started, told.at(-1), isUp()]).toEqual([2, 'replaced', true]);
  },
);

test.each(['end', 'pause'] as const)('a holder that hangs is killed at the %s of its workload', async (how) => {
  const hung = await hangAfterStatus();
  const over = holders[how](ID);
  await deadline();
  clock.jump(4_999);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(hung.signalCode).toBeNull();
  clock.jump(1);
  await inTime(over);
  await isKilled(hung);
  await expect.poll(() => isUp() ?? false).toBe(false);
  expect([holders.statuses().has(ID), started, told]).toEqual([how === 'pause', 0, []]);
});

test('a disk that hangs and does not say which process the holder is holds up no end of a workload', async () => {
  await holders.ensure(ID);
  const { holderPid } = workloadPaths(folder);
  // Nobody writes into the pipe, so whoever reads it waits.
  execFileSync('mkfifo', [holderPid]);
  await inTime(holders.end(ID));
  expect(holders.statuses().has(ID)).toBe(false);
  closeSync(openSync(holderPid, constants.O_WRONLY | constants.O_NONBLOCK));
});

test('a holder that ends right after it accepted the connection is followed by another one', async () => {
  const { holderSocket } = workloadPaths(folder);
  const ending = createServer((socket) => {
    ending.close();
    socket.destroy();
  }).listen(holderSocket);
  await once(ending, 'listening');
  await holders.ensure(ID);
  expect([started, told, isUp()]).toEqual([1, [], true]);
});

test('the start fails if also the next holder goes away', async () => {
  startHolder = async () => {
    const server = createServer((socket) => socket.destroy()).listen(workloadPaths(folder).holderSocket);
    servers.push(server);
    await once(server, 'listening');
    return 1;
  };
  await expect(holders.ensure(ID)).rejects.toThrow('the holder went away');
});

test('a workload that ends while its holder hangs gets no other holder', async () => {
  const hung = await startHung();
  const ensured = holders.ensure(ID);
  await deadline();
  await inTime(Promise.all([holders.end(ID), ensured]));
  await isKilled(hung);
  expect([started, told]).toEqual([0, []]);
  await expect.poll(() => holders.statuses().has(ID)).toBe(false);
});

test('a workload that ends while its holder starts has no holder afterwards', async () => {
  const begun = Promise.withResolvers<void>();
  startHolder = async () => {
    await begun.promise;
    return (await startProcess('')).pid ?? 0;
  };
  const ensured = holders.ensure(ID);
  await eventually('a start', 5_000, async () => started > 0 || undefined);
  const over = holders.end(ID);
  begun.resolve();
  await inTime(Promise.all([over, ensured]));
  expect(processes).toHaveLength(1);
  await expect.poll(() => processes[0]?.signalCode).toBe('SIGKILL');
  await expect.poll(() => holders.statuses().has(ID)).toBe(false);
});

test('the last host key stays in the reports while the next holder sends no status', async () => {
  const first = await hangAfterStatus();
  first.kill('SIGKILL');
  await expect.poll(isUp).toBe(false);
  await startHung();
  const ensured = holders.ensure(ID);
  await deadline();
  expect(holders.statuses().get(ID)).toMatchObject({ up: false, host_key: 'ssh-ed25519 KEY' });
  await inTime(ensured);
});
