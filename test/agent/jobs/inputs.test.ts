// The files of a job. A power cut at any moment leaves no input that is only half there, and what cannot be carried is not tried for ever.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { existsSync, mkdtempSync, readFileSync, readlinkSync, rmSync, statSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { prepareInputs, uploadCheckpoint } from '../../../agent/jobs/files.ts';
import { download, type JobLink, upload } from '../../../agent/jobs/transfer.ts';
import { systemClock } from '../../../shared/clock.ts';
import { messageOf } from '../../../shared/errors.ts';
import { createLog } from '../../../shared/log.ts';
import type { JobUrlAnswer } from '../../../shared/protocol/job.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';
import { desiredWorkload } from '../desired-workload.ts';

const CONTENT = 'one line\n';
const FILE = { name: 'train.jsonl', bytes: CONTENT.length, sha256: createHash('sha256').update(CONTENT).digest('hex') };
type Target = Parameters<typeof download>[0];
const WIRE = { ca: undefined, signal: new AbortController().signal };
let dir: string;
let server: Server;
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'inputs-'));
  server = createServer((_request, response) => response.end(CONTENT)).listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterEach(async () => {
  vi.restoreAllMocks();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  rmSync(dir, { recursive: true });
});

/** Notes the path of each file and folder that is flushed from now on, and whether `final` is there at that moment. */
async function watchFlushes(final: string): Promise<string[]> {
  const flushed: string[] = [];
  const handle = await open(dir);
  const prototype = Object.getPrototypeOf(handle) as FileHandle;
  await handle.close();
  vi.spyOn(prototype, 'sync').mockImplementation(async function (this: FileHandle) {
    flushed.push(`${readlinkSync(`/proc/self/fd/${this.fd}`)} ${existsSync(final) ? 'after' : 'before'} the rename`);
    await this.datasync();
  });
  return flushed;
}

function depsWith(
  link: Parameters<typeof prepareInputs>[1]['link'],
  sleep = systemClock().sleep,
  signal = new AbortController().signal,
): Parameters<typeof prepareInputs>[1] {
  const clock = { ...systemClock(), sleep };
  return { clock, log: createLog('test', 'silent'), stateDir: dir, ca: undefined, link, isWanted: () => true, signal };
}

test('an input is on the disk before it gets its name, and so is its name before the job is created', async () => {
  const { port } = server.address() as AddressInfo;
  const workload = desiredWorkload('w', 'trainer', { job: { inputs: [FILE], config: '{}', run_ms_max: 5_000 } });
  const path = join(dir, 'workloads/w/in/train.jsonl');
  const flushed = await watchFlushes(path);
  const url = async (): Promise<JobUrlAnswer> => ({ kind: 'url', url: `http://127.0.0.1:${port}/`, headers: {} });
  const mounts = await prepareInputs(workload, depsWith({ url }));
  expect(mounts).toContainEqual({ source: path, target: '/job/train.jsonl' });
  expect(readFileSync(path, 'utf8')).toBe(CONTENT);
  expect(statSync(path).mode & 0o777).toBe(0o644);
  expect(flushed.slice(-2)).toEqual([`${path}.new before the rename`, `${dirname(path)} after the rename`]);
});

test('an input that cannot be fetched is tried again after pauses that double up to a minute', async () => {
  const pauses: number[] = [];
  const ended = new AbortController();
  const sleep = async (ms: number): Promise<void> => {
    if (pauses.push(ms) === 6) ended.abort(new Error('the agent stops'));
  };
  const workload = desiredWorkload('w', 'trainer', { job: { inputs: [FILE], config: '{}', run_ms_max: 5_000 } });
  const url = async (): Promise<never> => {
    throw new Error('nobody answers');
  };
  await expect(prepareInputs(workload, depsWith({ url }, sleep, ended.signal))).rejects.toThrow('the agent stops');
  expect(pauses).toEqual([5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
});

test.each([
  ['a download', 'train.jsonl could not be fetched', (at: Target) => download(at, join(dir, 'input'), FILE, WIRE)],
  ['an upload', 'an upload was refused', (at: Target) => upload(at, Readable.from(['x']), 1, WIRE)],
])('%s shows the beginning of a refusal, also of one without an end', async (_what, failed, transfer) => {
  server.removeAllListeners('request');
  server.on('request', (_request, response: ServerResponse) => response.writeHead(403).write('no '.repeat(100)));
  const { port } = server.address() as AddressInfo;
  const shown = 'no '.repeat(100).slice(0, 200);
  await expect(transfer({ url: `http://127.0.0.1:${port}/`, headers: {} })).rejects.toThrow(
    new Error(`${failed}: 403 ${shown}`),
  );
});

describe('a job that is not wanted any more', () => {
  const UNWANTED = 'the job is not wanted here any more';
  const workload = desiredWorkload('w', 'trainer', { job: { inputs: [FILE], config: '{}', run_ms_max: 5_000 } });
  let clock: VirtualClock;
  let isWanted: boolean;
  beforeEach(() => {
    clock = virtualClock();
    isWanted = true;
  });
  /** Resolves with the reason for which the job is not prepared. */
  const prepare = (url: JobLink['url']): Promise<string> =>
    prepareInputs(workload, { ...depsWith({ url }), clock, isWanted: () => isWanted }).then(() => '', messageOf);

  test('ends its download within a second, whatever is still to come', async () => {
    server.removeAllListeners('request');
    const [asked, gone] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    server.on('request', (_request, response: ServerResponse) => {
      response.writeHead(200, { 'content-length': CONTENT.length });
      response.write(CONTENT.slice(0, 3));
      response.once('close', gone.resolve);
      asked.resolve();
    });
    const { port } = server.address() as AddressInfo;
    const ended = prepare(async () => ({ kind: 'url', url: `http://127.0.0.1:${port}/`, headers: {} }));
    await asked.promise;
    await clock.advance(10_000);
    isWanted = false;
    await clock.advance(1_000);
    await gone.promise;
    expect(await ended).toBe(UNWANTED);
    expect(clock.waiting()).toBe(0);
  });

  test('does not wait for the next try of a download that has failed', async () => {
    const tries: number[] = [];
    const ended = prepare(async () => {
      tries.push(clock.now());
      throw new Error('nobody answers');
    });
    await vi.waitFor(() => expect(tries).toHaveLength(1));
    isWanted = false;
    await clock.advance(1_000);
    expect(await ended).toBe(UNWANTED);
    expect(tries).toHaveLength(1);
  });

  test('is looked for only until its inputs are there', async () => {
    const { port } = server.address() as AddressInfo;
    expect(await prepare(async () => ({ kind: 'url', url: `http://127.0.0.1:${port}/`, headers: {} }))).toBe('');
    expect(clock.waiting()).toBe(0);
  });

  test('gets no container, also if it ends right after the last byte', async () => {
    const { port } = server.address() as AddressInfo;
    const ended = prepare(async () => {
      isWanted = false;
      return { kind: 'url', url: `http://127.0.0.1:${port}/`, headers: {} };
    });
    expect(await ended).toBe(UNWANTED);
  });

  test('asks for nothing if it was not wanted at the beginning', async () => {
    isWanted = false;
    const url = vi.fn<JobLink['url']>();
    expect(await prepare(url)).toBe(UNWANTED);
    expect(url).not.toHaveBeenCalled();
    expect(clock.waiting()).toBe(0);
  });
});

test.each([
  [64 * 1024 ** 3, 'asked for'],
  [64 * 1024 ** 3 + 1, 'the checkpoint last is larger than 64 GiB'],
])('a checkpoint of %d bytes is: %s', async (bytes, expected) => {
  const stream = Readable.from(['weights']);
  const engine = { fileIn: async () => ({ bytes, stream }) };
  const link = { url: async () => ({ kind: 'refused' as const, detail: 'asked for' }) };
  const wire = { ...depsWith(link), engine };
  expect(await uploadCheckpoint('w', { step: 1, name: 'last' }, wire)).toBe(expected);
  expect(stream.destroyed).toBe(true);
});
