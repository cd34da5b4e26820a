// Images, logs and bare runs on a Docker Engine that the test plays: what the driver asks for, and how it reads the answers.
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';
import type { BareRun, Engine, PullNews } from '../../../agent/runtime/engine.ts';
import { type EngineAnswer, openScriptedEngine, type ScriptedEngine } from './scripted-engine.ts';

let script: ScriptedEngine;
let engine: Engine;
beforeEach(async () => {
  script = await openScriptedEngine();
  engine = openDocker({ socketPath: script.socketPath, machineId: 'm-1' });
});
afterEach(() => script.close());

const IMAGE = { Id: 'sha256:1', Config: {} };
const OURS = { Id: 'c-1', State: 'running', Labels: {}, Mounts: [], HostConfig: { NetworkMode: 'net-1' } };
const answer = (line: string, reply: EngineAnswer): void => void script.answers.set(line, reply);
const bodyOf = (line: string): unknown => script.asked.find((each) => each.line === line)?.body;
const queryOf = (line: string): unknown => script.asked.find((each) => each.line === line)?.query;

describe('an image', () => {
  const facts = (config: object, more: object = {}): void =>
    answer('GET /images/app/json', { body: { ...IMAGE, Config: config, ...more } });
  const DIGEST = `sha256:${'d'.repeat(64)}`;

  test('is described by what it says, or by nothing', async () => {
    facts({});
    const nothing = { entrypoint: [], cmd: [], env: [], user: '', working_dir: '', stop_signal: '' };
    expect(await engine.inspectImage('app')).toEqual({ digest: 'sha256:1', ...nothing });
    facts({ Entrypoint: null, Cmd: 'one', Env: null, User: null, WorkingDir: null, StopSignal: 9 });
    expect(await engine.inspectImage('app')).toEqual({ digest: 'sha256:1', ...nothing, cmd: ['one'] });
    facts(
      { Entrypoint: ['a', 'b'], Cmd: ['c'], Env: ['A=1'], User: '1:2', WorkingDir: '/w', StopSignal: 'SIGINT' },
      { RepoDigests: [`app@${DIGEST}`, 'other@sha256:0'] },
    );
    expect(await engine.inspectImage('app')).toEqual({
      digest: DIGEST,
      entrypoint: ['a', 'b'],
      cmd: ['c'],
      env: ['A=1'],
      user: '1:2',
      working_dir: '/w',
      stop_signal: 'SIGINT',
    });
  });

  test('that was asked for by its digest has that digest', async () => {
    answer(`GET /images/app@${DIGEST}/json`, { body: { ...IMAGE, RepoDigests: ['app@sha256:0'] } });
    expect(await engine.inspectImage(`app@${DIGEST}`)).toMatchObject({ digest: DIGEST });
  });

  test('that is absent is undefined, and an engine that fails is an error', async () => {
    answer('GET /images/app/json', { status: 404 });
    expect(await engine.inspectImage('app')).toBeUndefined();
    await engine.removeImage('app');
    expect(script.lines().filter((line) => line.startsWith('DELETE'))).toEqual([]);
    answer('GET /images/app/json', { status: 500, body: { message: 'broken' } });
    await expect(engine.inspectImage('app')).rejects.toThrow(/^broken$/);
  });

  const pull = (login: Parameters<Engine['pull']>[1] = null, onNews: (news: PullNews) => void = () => undefined) =>
    engine.pull('app', login, onNews, new AbortController().signal);
  const loginOf = (): unknown => {
    const header = script.asked.find(({ line }) => line === 'POST /images/create')?.headers['x-registry-auth'];
    return header === undefined ? undefined : JSON.parse(Buffer.from(String(header), 'base64').toString());
  };

  test('is pulled without a login, with a token, or with a name and a password', async () => {
    facts({});
    await pull();
    expect(loginOf()).toBeUndefined();
    script.asked.length = 0;
    await pull({ kind: 'bearer', token: 't' });
    expect(loginOf()).toEqual({ registrytoken: 't' });
    script.asked.length = 0;
    await pull({ kind: 'basic', username: 'u', password: 'p' });
    expect(loginOf()).toEqual({ username: 'u', password: 'p' });
  });

  test('that fails in the middle, or is not there afterwards, was not pulled', async () => {
    facts({});
    const lines = [{ id: 'l', status: 'Downloading', progressDetail: { current: 1, total: 2 } }];
    const news: PullNews[] = [];
    answer('POST /images/create', { body: `${lines.map((line) => JSON.stringify(line)).join('\n')}\n` });
    await pull(null, (each) => void news.push(each));
    expect(news).toEqual([{ done_bytes: 1, total_bytes: 2, downloading: true }]);
    answer('POST /images/create', { body: `{"status":"x"}\n{"error":"denied"}\n{"status":"y"}\n` });
    await expect(pull()).rejects.toThrow('denied');
    script.answers.delete('POST /images/create');
    answer('GET /images/app/json', { status: 404 });
    await expect(pull()).rejects.toThrow('the engine stopped pulling before the image was whole');
  });
});

describe('a log', () => {
  test('is read to its present end, or followed, from a moment on if one is given', async () => {
    answer('GET /containers/json', { body: [OURS] });
    answer('GET /containers/c-1/logs', { body: 'lines' });
    expect(await text(await engine.logs('w-1', { tail: 5, follow: false, since: null }))).toBe('lines');
    expect(await text(await engine.logs('w-1', { tail: 6, follow: true, since: '7' }))).toBe('lines');
    const common = { stdout: 'true', stderr: 'true', timestamps: 'true' };
    expect(script.asked.filter(({ line }) => line.endsWith('/logs')).map(({ query }) => query)).toEqual([
      { ...common, tail: '5', follow: 'false' },
      { ...common, tail: '6', follow: 'true', since: '7' },
    ]);
  });

  test('cannot be read if its container is gone', async () => {
    await expect(engine.logs('w-1', { tail: 5, follow: false, since: null })).rejects.toThrow('no longer exists');
  });

  test.each([true, false])(
    'is passed on while the engine sends it, and not kept until its end (follow: %s)',
    async (follow) => {
      answer('GET /containers/json', { body: [OURS] });
      answer('GET /containers/c-1/logs', { body: 'a line', isOpen: true });
      const log = await engine.logs('w-1', { tail: 5, follow, since: null });
      expect(String(await once(log, 'data'))).toBe('a line');
      log.destroy();
    },
  );
});

describe('a bare run', () => {
  const NAME = 'svc-bare-disk-m-1';
  const RUN: BareRun = { name: 'disk', argv: ['/node'], mounts: [], disk_mib: 64, network: false };
  const END = `GET /containers/c-new/json`;
  const ended = (state: object): void => answer(END, { body: { State: { Running: false, ExitCode: 3, ...state } } });

  test('clears what a crash has left, runs with its disk limit and without a network, and leaves nothing', async () => {
    ended({});
    expect(await engine.runBare(RUN)).toBe(3);
    expect(script.lines()).toEqual([
      `DELETE /containers/${NAME}`,
      'POST /images/create',
      'POST /containers/create',
      'POST /containers/c-new/start',
      'GET /containers/c-new/logs',
      END,
      `DELETE /containers/${NAME}`,
      'DELETE /images/svc-empty:disk-m-1',
    ]);
    expect(queryOf(`DELETE /containers/${NAME}`)).toEqual({ force: 'true', v: 'true' });
    expect(queryOf('POST /containers/create')).toMatchObject({ name: NAME });
    expect(queryOf('GET /containers/c-new/logs')).toMatchObject({ stdout: 'true', follow: 'true' });
    expect(bodyOf('POST /containers/create')).toMatchObject({
      Image: 'svc-empty:disk-m-1',
      Entrypoint: ['/node'],
      HostConfig: { NetworkMode: 'none', Mounts: [], StorageOpt: { size: '64M' } },
    });
  });

  test('has a network of its own if it needs one, and removes it at the end', async () => {
    ended({});
    await engine.runBare({ ...RUN, disk_mib: null, network: true });
    expect(script.lines().filter((line) => line.includes('networks'))).toEqual([
      `DELETE /networks/${NAME}`,
      'POST /networks/create',
      `DELETE /networks/${NAME}`,
    ]);
    const { HostConfig } = bodyOf('POST /containers/create') as { HostConfig: object };
    expect(HostConfig).toMatchObject({ NetworkMode: NAME });
    expect(HostConfig).not.toHaveProperty('StorageOpt');
  });

  test('that has not ended is no result, and is cleared all the same', async () => {
    ended({ Running: true });
    await expect(engine.runBare(RUN)).rejects.toThrow('the log of the container ended before the container did');
    expect(script.lines().slice(-2)).toEqual([`DELETE /containers/${NAME}`, 'DELETE /images/svc-empty:disk-m-1']);
  });

  test.each([
    [`DELETE /containers/${NAME}`, [404]],
    ['DELETE /images/svc-empty:disk-m-1', [404, 409]],
    [`DELETE /networks/${NAME}`, [404]],
  ])('takes only %s with %j for cleared', async (line, done) => {
    ended({});
    for (const status of [404, 409, 500]) {
      answer(line, { status });
      const outcome = await engine.runBare({ ...RUN, network: true }).then(
        () => 'done',
        () => 'failed',
      );
      expect([status, outcome]).toEqual([status, done.includes(status) ? 'done' : 'failed']);
    }
  });
});

test('the disk is that of the folder in which the engine keeps its images, if it is on this host', async () => {
  answer('GET /info', { body: { DockerRootDir: '/' } });
  const disk = await engine.disk();
  expect(disk?.folder).toBe('/');
  expect(disk?.total_bytes).toBeGreaterThan(disk?.free_bytes ?? Infinity);
  expect(disk?.free_bytes).toBeGreaterThan(1024 ** 2);
  answer('GET /info', { body: { DockerRootDir: '/no/such/folder' } });
  expect(await engine.disk()).toBeUndefined();
});
