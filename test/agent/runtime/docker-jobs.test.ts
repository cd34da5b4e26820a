// What only jobs need of the Docker Engine: no network, folders that anybody may write, a long notice, and one file at a time, which comes out of
// an archive with exactly its bytes.
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';
import { fileOfArchive } from '../../../agent/runtime/docker-jobs.ts';
import type { ContainerShape, Engine } from '../../../agent/runtime/engine.ts';
import { tarOf } from '../../../agent/runtime/volumeless.ts';
import { capture } from '../../kit/capture.ts';
import { type EngineAnswer, openScriptedEngine, type ScriptedEngine } from './scripted-engine.ts';

let script: ScriptedEngine;
let engine: Engine;
beforeEach(async () => {
  script = await openScriptedEngine();
  engine = openDocker({ socketPath: script.socketPath, machineId: 'm-1' });
});
afterEach(() => script.close());

const JOB: ContainerShape = {
  workload_id: 'w-1',
  instance_id: 'i-1',
  image: 'trainer',
  hostname: 'host',
  entrypoint: ['/train'],
  env: [],
  mounts: [],
  gpu_uuids: [],
  network: 'none',
  stop_signal: 'SIGKILL',
  folders: ['/job/out', '/job/ckpt'],
  disk_gb: null,
  memory_bytes: 1,
  shm_bytes: 1,
  nano_cpus: 1,
  cpu_shares: 1,
  pids_max: 1,
  memlock_bytes: 1,
  nofile: 1,
};
const OURS = {
  Id: 'c-1',
  State: 'created',
  Labels: { 'svc.workload_id': 'w-1' },
  Mounts: [],
  HostConfig: { NetworkMode: 'none' },
};

const answer = (line: string, reply: EngineAnswer): void => void script.answers.set(line, reply);
const found = (...containers: object[]): void => answer('GET /containers/json', { body: containers });
const asksFor = (part: string): string[] => script.lines().filter((line) => line.includes(part));

describe('the container of a job', () => {
  beforeEach(() => answer('GET /images/trainer/json', { body: { Id: 'sha256:1', Config: {} } }));

  test('has no network, and its folders are there for everybody to write', async () => {
    await engine.create(JOB);
    const made = script.asked.find(({ line }) => line === 'POST /containers/create');
    expect(made?.body).toMatchObject({ HostConfig: { NetworkMode: 'none' } });
    expect(asksFor('networks')).toEqual([]);
    const [put, ...more] = script.asked.filter(({ line }) => line === 'PUT /containers/c-new/archive');
    const folders = tarOf([
      { name: 'job/out/', mode: '1777' },
      { name: 'job/ckpt/', mode: '1777' },
    ]);
    expect([put?.query, put?.body, more]).toEqual([{ path: '/' }, folders.toString(), []]);
  });

  test('without folders gets none', async () => {
    await engine.create({ ...JOB, folders: [] });
    expect(asksFor('archive')).toEqual([]);
  });

  test('is shown as never started before its only start', async () => {
    found(OURS, { ...OURS, State: 'exited' }, { ...OURS, State: 'running' });
    const states = (await engine.list()).map(({ started, running }) => [started, running]);
    expect(states).toEqual([
      [false, false],
      [true, false],
      [true, true],
    ]);
  });

  test('is cut off and removed without a network to take away', async () => {
    found(OURS);
    await engine.stopAndCut('w-1');
    await engine.remove('w-1');
    expect(asksFor('c-1')).toEqual(['POST /containers/c-1/stop', 'DELETE /containers/c-1']);
    expect(asksFor('networks')).toEqual([]);
  });

  test('gets SIGTERM from the agent alone: an engine that ends kills it at once, so it stores no part of a result', async () => {
    await engine.create(JOB);
    expect(script.asked.find(({ line }) => line === 'POST /containers/create')?.body).toMatchObject({
      StopSignal: 'SIGKILL',
    });
    found(OURS, { ...OURS, Id: 'c-2' });
    await engine.stop('w-1', 60_000);
    const told = script.asked.filter(({ line }) => /\/(kill|wait|stop)$/.test(line));
    expect(told.map(({ line, query }) => [line, query['signal'] ?? query['t']])).toEqual(
      ['c-1', 'c-2'].flatMap((id) => [
        [`POST /containers/${id}/kill`, 'SIGTERM'],
        [`POST /containers/${id}/wait`, undefined],
        [`POST /containers/${id}/stop`, '0'],
      ]),
    );
  });

  test.each([
    ['kill', 404, 'done'],
    ['kill', 409, 'done'],
    ['kill', 500, 'failed'],
    ['wait', 404, 'done'],
    ['wait', 500, 'done'],
    ['stop', 304, 'done'],
    ['stop', 404, 'done'],
    ['stop', 409, 'failed'],
    ['stop', 500, 'failed'],
  ])('whose engine answers a %s with %d has ended: %s', async (call, status, outcome) => {
    found(OURS);
    answer(`POST /containers/c-1/${call}`, { status });
    const done = engine.stop('w-1', 1_000).then(
      () => 'done',
      () => 'failed',
    );
    expect(await done).toBe(outcome);
  });
});

describe('a file of a job', () => {
  const read = async (): Promise<string | undefined> => {
    const file = await engine.fileIn('w-1', '/job/out/result');
    return file && `${file.bytes} bytes: ${await text(file.stream)}`;
  };

  test('is read out of its container', async () => {
    found(OURS);
    answer('GET /containers/c-1/archive', { body: tarOf([{ name: 'result', content: 'weights' }]).toString() });
    expect(await read()).toBe('7 bytes: weights');
    expect(script.asked.at(-1)?.query).toEqual({ path: '/job/out/result' });
  });

  test('is unknown, and not missing, while the engine lists no container', async () => {
    await expect(read()).rejects.toThrow(/^the engine lists no container of the job$/);
  });

  test('is unknown if the container was removed while it was asked for', async () => {
    found(OURS);
    script.answers.set('GET /containers/c-1/archive', () => {
      found();
      return { status: 404, body: { message: 'No such container: c-1' } };
    });
    await expect(read()).rejects.toThrow(/^the engine lists no container of the job$/);
  });

  test('is none if it is not there', async () => {
    found(OURS);
    answer('GET /containers/c-1/archive', { status: 404 });
    expect(await read()).toBeUndefined();
    answer('GET /containers/c-1/archive', { status: 500, body: { message: 'broken' } });
    await expect(read()).rejects.toThrow(/^broken$/);
  });
});

test('the engine tells its version', async () => {
  expect(await engine.version()).toBe('27.0');
});

describe('the archive in which an engine sends one file', () => {
  const dir = mkdtempSync(join(tmpdir(), 'archive-'));
  afterAll(() => rmSync(dir, { recursive: true }));

  const archive = (bytes: Buffer, pieceBytes = 100): Readable =>
    Readable.from(
      Array.from({ length: Math.ceil(bytes.length / pieceBytes) }, (_, i) =>
        bytes.subarray(i * pieceBytes, (i + 1) * pieceBytes),
      ),
      { objectMode: false },
    );

  test.each([1, 100, 512, 10_000])('reads a file that comes in pieces of %i bytes', async (pieceBytes) => {
    const content = 'a'.repeat(1300);
    const found = await fileOfArchive(archive(tarOf([{ name: 'f', content }]), pieceBytes));
    expect(found?.bytes).toBe(1300);
    expect((await buffer(found?.stream ?? Readable.from([]))).toString()).toBe(content);
  });

  test('reads the file behind a description of it', async () => {
    writeFileSync(join(dir, 'x'.repeat(120)), 'long name');
    await capture(['tar', '--format=pax', '-C', dir, '-cf', join(dir, 'pax.tar'), 'x'.repeat(120)]);
    const found = await fileOfArchive(archive(readFileSync(join(dir, 'pax.tar'))));
    expect((await buffer(found?.stream ?? Readable.from([]))).toString()).toBe('long name');
  });

  test('refuses a folder and a link', async () => {
    expect(await fileOfArchive(archive(tarOf([{ name: 'd/' }])))).toBeUndefined();
    symlinkSync('/etc/passwd', join(dir, 'link'));
    await capture(['tar', '-C', dir, '-cf', join(dir, 'link.tar'), 'link']);
    expect(await fileOfArchive(archive(readFileSync(join(dir, 'link.tar'))))).toBeUndefined();
  });

  test.each([
    ['unread', 0],
    ['read in part', 1],
    ['while it waits for more', 2],
  ])('ends when the file is given up %s', async (_when, reads) => {
    const source = new Readable({ read: () => undefined });
    source.push(tarOf([{ name: 'f', content: 'a'.repeat(1300) }]).subarray(0, 1000));
    const found = await fileOfArchive(source);
    const pieces = found?.stream[Symbol.asyncIterator]();
    if (reads > 0) await pieces?.next();
    const more = reads > 1 ? pieces?.next() : undefined;
    found?.stream.destroy();
    await more?.catch(() => undefined);
    await expect.poll(() => source.destroyed).toBe(true);
  });

  test('ends when the file is read to its end', async () => {
    const source = archive(tarOf([{ name: 'f', content: 'a'.repeat(1300) }]));
    await buffer((await fileOfArchive(source))?.stream ?? Readable.from([]));
    await expect.poll(() => source.destroyed).toBe(true);
  });

  test('fails if the archive ends before the file does', async () => {
    const found = await fileOfArchive(archive(tarOf([{ name: 'f', content: 'a'.repeat(1300) }]).subarray(0, 1000)));
    await expect(buffer(found?.stream ?? Readable.from([]))).rejects.toThrow('too early');
    await expect(fileOfArchive(archive(Buffer.alloc(100)))).rejects.toThrow('too early');
  });
});
