// `svc run` and `svc logs --follow`: what they show of the output, and how they end.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, test } from 'vitest';
import { openSvc, type SvcOptions, type SvcResult } from '../../kit/svc.ts';
import {
  AWAY,
  awayFor,
  END,
  type Exit,
  exited,
  ID,
  lineOf,
  type Play,
  play,
  type Played,
  RUN,
  SILENT,
  svcOf,
} from './played-api.ts';

const LAUNCHER = resolve(import.meta.dirname, '../../../control-plane/svc.js');

const logRequests = ({ asked }: Play): string[] => asked.filter((one) => one.includes('/logs'));

describe('svc run', () => {
  test.each([
    [exited(0), 0, /^i-a+\ni-a+ running\n$/],
    [exited(7), 7, /the program exited with code 7/],
    [{ code: null, signal: 'SIGKILL' }, 137, /the program was ended by signal SIGKILL/],
    [{ code: null, signal: 'SIGSEGV' }, 139, /SIGSEGV/],
    [{ code: null, signal: 'SIGSTRANGE' }, 128, /SIGSTRANGE/],
  ])('of a program of which the API says %j exits with %i, and deletes the instance', async (end, code, told) => {
    const played = play({ ends: [null, null, end], logs: [lineOf('out') + END] });
    expect(await svcOf(played, ...RUN)).toMatchObject({
      code,
      stdout: 'out\n',
      stderr: expect.stringMatching(told) as string,
    });
    expect(played.asked.at(-1)).toBe(`DELETE /v1/instances/${ID}`);
  });

  test('knows the end of the program while the reason of the status says something else', async () => {
    const played = play({
      ends: [exited(7)],
      reason: 'The host has found a GPU of this instance broken.',
      logs: [END],
    });
    expect(await svcOf(played, ...RUN)).toMatchObject({ code: 7 });
  });

  test('asks for the most lines that the API gives, because the program may have begun long before the first login', async () => {
    const played = play({ ends: [exited(0)], logs: [END] });
    await svcOf(played, ...RUN);
    expect(logRequests(played)).toEqual([`GET /v1/instances/${ID}/logs?follow=true&tail=1000`]);
  });

  test('shows all lines that still arrive after the end of the program is known', async () => {
    let sent = 0;
    const lines = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        sent += 1;
        if (sent > 50) return new Promise(() => undefined);
        controller.enqueue(Buffer.from(lineOf(`line ${sent}`)));
        return undefined;
      },
    });
    const played = play({ ends: [exited(0)], logs: [lines] });
    const { code, stdout } = await svcOf(played, ...RUN);
    expect(code).toBe(0);
    expect(stdout.trim().split('\n')).toHaveLength(50);
  });

  test('goes on after the last line if the log breaks off', async () => {
    const at = '2026-01-01T00:00:01.000000002Z';
    const logs = [lineOf('one', at), lineOf('two') + END];
    const running = Array.from({ length: 20 }, () => null);
    const played = play({ ends: [...running, exited(0)], logs });
    expect((await svcOf(played, ...RUN)).stdout).toBe('one\ntwo\n');
    const [, second] = logRequests(played);
    expect(second).toBe(`GET /v1/instances/${ID}/logs?follow=true&tail=1000&since=${encodeURIComponent(at)}`);
  });

  // The client itself tries each request four times.
  test('waits while the API is away, says so once, goes on with the log, and deletes the instance', async () => {
    const played = play({
      ends: [null, null, ...awayFor(12), exited(7)],
      logs: [lineOf('one'), ...awayFor(8), lineOf('two') + END],
    });
    const { code, stdout, stderr } = await svcOf(played, ...RUN);
    expect([code, stdout]).toEqual([7, 'one\ntwo\n']);
    expect(stderr.match(/The API cannot be reached/g)).toHaveLength(1);
    expect(played.asked.at(-1)).toBe(`DELETE /v1/instances/${ID}`);
  });

  test('names the instance that still costs money if it cannot be deleted', async () => {
    const played = play({ ends: [exited(0)], logs: [END], deleted: AWAY });
    const { code, stderr } = await svcOf(played, ...RUN);
    expect(code).toBe(1);
    expect(stderr).toContain(`svc instance delete ${ID}`);
  });
});

describe('svc run that does not come to its end', () => {
  /** Runs a line of words against an API that is played. `interruptAt` is the begin of the request at which the person presses Ctrl-C. */
  const cut = async (
    { interruptAt, ...played }: Partial<Played> & { interruptAt?: string },
    { words = RUN, ...options }: SvcOptions & { words?: string[] } = {},
  ): Promise<SvcResult & { deletes: number }> => {
    const onAsked = (request: string): void => {
      if (interruptAt !== undefined && request.startsWith(interruptAt)) svc.interrupt();
    };
    const api = play({ ends: [null], logs: [new ReadableStream()], onAsked, ...played });
    const svc = openSvc({ baseUrl: 'https://api.test/v1', key: 'svc_live_x', fetch: api.fetch, ...options });
    const result = await svc.run(...words).finally(() => svc.close());
    return { ...result, deletes: api.asked.filter((request) => request.startsWith('DELETE')).length };
  };
  const ENDS: [string, number, Parameters<typeof cut>[0]][] = [
    ['is interrupted while its program runs', 130, { interruptAt: `GET /v1/instances/${ID}/logs` }],
    ['waits too long', 6, { status: 'starting' }],
    ['gets an instance that fails', 5, { status: 'error' }],
    ['gets an answer that it does not understand', 1, { ends: [7 as unknown as Exit] }],
  ];
  const withoutRm = RUN.filter((word) => word !== '--rm');

  test.each(ENDS)('and %s exits with %i, and deletes the instance', async (_what, code, played) => {
    const result = await cut(played);
    expect(result).toMatchObject({ code, deletes: 1, stderr: expect.stringContaining('The instance is deleted.') });
    expect(result.stderr).not.toContain('costs money');
    const [, , ...words] = RUN;
    const { stderr } = await cut(played, { words: ['run', '--rm', '--json', ...words] });
    expect(JSON.parse(stderr.trim().split('\n').at(-1) ?? '')).not.toHaveProperty('resource_id');
  });

  test.each(ENDS)('and %s exits with %i, and without --rm names the instance', async (_what, code, played) => {
    const result = await cut(played, { words: withoutRm });
    expect(result).toMatchObject({ code, deletes: 0, stderr: expect.stringMatching(`\\(${ID}\\)`) as string });
    const hint = code === 5 ? `svc instance events ${ID}` : `svc instance delete ${ID}`;
    expect(result.stderr).toContain(hint);
  });

  test.each([
    ['the launch was not answered yet', { interruptAt: 'POST' }, 'Waiting for the answer to the launch'],
    [
      'the launch had no instance yet',
      { placed: [null, null, null, ID], interruptAt: 'GET /v1/operations' },
      'Waiting for the instance of the launch',
    ],
  ])('deletes the instance also if it is interrupted while %s', async (_what, played, told) => {
    const result = await cut(played);
    expect(result).toMatchObject({ code: 130, deletes: 1, stderr: expect.stringContaining(told) });
    expect(result.stderr).toContain('The instance is deleted.');
  });

  test('names the launch if it makes no instance in time', async () => {
    const result = await cut({ placed: [null], interruptAt: 'GET /v1/operations' });
    expect(result).toMatchObject({ code: 130, deletes: 0 });
    expect(result.stderr).toContain('svc instance operation op');
  });

  test.each([
    ['refused', { deleted: 403 }, /could not be deleted: the API answered 403/],
    ['never answered', { deleted: SILENT, isLate: true }, /could not be deleted: the API did not answer for 30 s/],
  ] as const)('names the instance if its deletion is %s', async (_what, { deleted, ...options }, why) => {
    const result = await cut({ interruptAt: `GET /v1/instances/${ID}/logs`, deleted }, options);
    expect(result).toMatchObject({ code: 130, deletes: 1, stderr: expect.stringMatching(why) });
    expect(result.stderr).toContain(`svc instance delete ${ID}`);
  });

  test('says nothing of an instance that has ended by itself', async () => {
    const ended = play({ ends: [exited(0)], logs: [END], deleted: 404 });
    expect(await svcOf(ended, ...RUN)).toMatchObject({
      code: 0,
      stderr: `${ID}\n${ID} running\n`,
    });
  });
});

test.each([
  [['logs', ID, '-f', '--tail', '7'], '?follow=true&tail=7'],
  [['logs', ID, '-f'], '?follow=true'],
  [['logs', ID, '--tail', '7'], '?tail=7'],
])('svc %j asks for the log with %s', async (argv, query) => {
  const played = play({ ends: [null], logs: [argv.includes('-f') ? END : '{"data":[]}'] });
  expect((await svcOf(played, ...argv)).code).toBe(0);
  expect(logRequests(played)).toEqual([`GET /v1/instances/${ID}/logs${query}`]);
});

describe('the process svc', () => {
  let server: Server | undefined;
  afterEach(() => {
    server?.closeAllConnections();
    server?.close();
    server = undefined;
  });

  /** The address of the played API on a socket. */
  async function serve(played: Pick<Play, 'fetch' | 'asked'>): Promise<string> {
    server = createServer((request, response) => {
      void (async () => {
        const answer = await played.fetch(`http://api.test${request.url ?? ''}`, { method: request.method ?? 'GET' });
        response.writeHead(answer.status);
        response.end(await answer.text());
      })();
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  }

  const envOf = (baseUrl: string) => ({ HOME: '/nowhere', SVC_API_KEY: 'svc_live_x', SVC_BASE_URL: baseUrl });

  test('deletes what it has launched, also if the reader of its output has ended before', async () => {
    const many = Array.from({ length: 500 }, (_, i) => lineOf(`${i} ${'x'.repeat(500)}`)).join('');
    const played = play({ ends: [null, null, exited(0)], logs: [many + END] });
    const child = spawn(process.execPath, [LAUNCHER, ...RUN], { env: envOf(await serve(played)) });
    child.stdout.destroy();
    const [code] = (await once(child, 'exit')) as [number];
    expect(played.asked.at(-1)).toBe(`DELETE /v1/instances/${ID}`);
    expect(code).toBe(0);
  });

  /** `svc run --rm` whose program runs for ever. */
  async function running(more: Partial<Played> = {}): Promise<{ played: Play; child: ChildProcess }> {
    const follows = Promise.withResolvers<void>();
    const onAsked = (request: string): void => {
      if (request.includes('/logs')) follows.resolve();
      more.onAsked?.(request);
    };
    const played = play({ ends: [null], logs: [new ReadableStream()], ...more, onAsked });
    const child = spawn(process.execPath, [LAUNCHER, ...RUN], { env: envOf(await serve(played)) });
    await follows.promise;
    return { played, child };
  }

  // `timeout` and npm send a signal to the process and to its group.
  test.each([[['SIGINT']], [['SIGTERM']], [['SIGHUP']], [['SIGTERM', 'SIGHUP']]] as const)(
    'deletes what it has launched at %j',
    async (signals) => {
      const { played, child } = await running();
      for (const signal of signals) child.kill(signal);
      expect(await once(child, 'exit')).toEqual([130, null]);
      expect(played.asked.at(-1)).toBe(`DELETE /v1/instances/${ID}`);
    },
  );

  test('ends at a later signal without waiting for anything', async () => {
    const deletes = Promise.withResolvers<void>();
    const onAsked = (request: string): void => void (request.startsWith('DELETE') && deletes.resolve());
    const { child } = await running({ deleted: SILENT, onAsked });
    child.kill('SIGTERM');
    await deletes.promise;
    const again = setInterval(() => child.kill('SIGTERM'), 100);
    const told = text(child.stderr ?? Readable.from([]));
    expect(await once(child, 'exit')).toEqual([130, null]);
    clearInterval(again);
    expect(await told).not.toContain('could not be deleted');
  });

  test.runIf(process.platform === 'linux')('passes a SIGTERM on to the program that it has started', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'svc-ssh-'));
    writeFileSync(join(dir, 'ssh'), '#!/bin/sh\necho started\nexec sleep 600\n', { mode: 0o755 });
    const connection = { hostname: 'h', port: 22, ssh_command: 'ssh root@h', host_key: 'k' };
    const fetched = async (): Promise<Response> => Response.json({ id: ID, status: 'running', connection });
    const env = { ...envOf(await serve({ fetch: fetched, asked: [] })), HOME: dir, PATH: `${dir}:/usr/bin:/bin` };
    const child = spawn(process.execPath, [LAUNCHER, 'ssh', ID], { env });
    await once(child.stdout, 'data');
    child.kill('SIGTERM');
    // The output is closed when both processes have ended.
    expect(await once(child, 'close')).toEqual([130, null]);
    rmSync(dir, { recursive: true });
  });

  test('ends without an error as soon as nobody reads a log that it follows', async () => {
    const played = play({ ends: [null], logs: Array.from({ length: 9 }, () => lineOf('x'.repeat(500))) });
    const child = spawn(process.execPath, [LAUNCHER, 'logs', ID, '-f'], { env: envOf(await serve(played)) });
    child.stdout.destroy();
    expect((await once(child, 'exit'))[0]).toBe(0);
  });

  test.each([[['doctor']], [['file', 'upload', LAUNCHER]]])(
    '%j keeps its exit code if nobody reads its output',
    async (words) => {
      const fetched = async (): Promise<Response> => Response.json({ id: 'file-1', status: 'error' });
      const child = spawn(process.execPath, [LAUNCHER, ...words], {
        env: envOf(await serve({ fetch: fetched, asked: [] })),
      });
      child.stdout.destroy();
      expect(await once(child, 'exit')).toEqual([1, null]);
    },
  );

  test.runIf(process.platform === 'linux')('fails if its output cannot be written', async () => {
    const script = `exec '${process.execPath}' '${LAUNCHER}' completion bash > /dev/full`;
    const ran = spawnSync('sh', ['-c', script], { env: envOf('http://127.0.0.1:1/v1'), encoding: 'utf8' });
    expect([ran.status, ran.stderr]).toEqual([1, expect.stringMatching(/the output cannot be written.*ENOSPC/)]);
  });
});
