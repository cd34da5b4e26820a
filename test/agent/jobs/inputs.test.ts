// The inputs of a job on the disk of its host: a power cut at any moment leaves no input that is only half there.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, readlinkSync, rmSync, statSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { prepareInputs } from '../../../agent/jobs/files.ts';
import { systemClock } from '../../../shared/clock.ts';
import { createLog } from '../../../shared/log.ts';
import { desiredWorkload } from '../desired-workload.ts';

const CONTENT = 'one line\n';
const FILE = { name: 'train.jsonl', bytes: CONTENT.length, sha256: createHash('sha256').update(CONTENT).digest('hex') };
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

test('an input is on the disk before it gets its name, and so is its name before the job is created', async () => {
  const { port } = server.address() as AddressInfo;
  const workload = desiredWorkload('w', 'trainer', { job: { inputs: [FILE], config: '{}', run_ms_max: 5_000 } });
  const path = join(dir, 'workloads/w/in/train.jsonl');
  const flushed = await watchFlushes(path);
  const mounts = await prepareInputs(workload, {
    clock: systemClock(),
    log: createLog('test', 'silent'),
    stateDir: dir,
    ca: undefined,
    link: { url: async () => ({ kind: 'url', url: `http://127.0.0.1:${port}/`, headers: {} }) },
    isWanted: () => true,
    signal: new AbortController().signal,
  });
  expect(mounts).toContainEqual({ source: path, target: '/job/train.jsonl' });
  expect(readFileSync(path, 'utf8')).toBe(CONTENT);
  expect(statSync(path).mode & 0o777).toBe(0o644);
  expect(flushed.slice(-2)).toEqual([`${path}.new before the rename`, `${dirname(path)} after the rename`]);
});
