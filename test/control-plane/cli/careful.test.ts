// How `svc` treats the key, the files and the memory of its user: warnings, limits, and names that belong to nobody else.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from 'vitest';
import { openSvc, type Svc, type SvcOptions } from '../../kit/svc.ts';

const HTTPS = 'https://api.example.com/v1';
const HTTP = 'http://api.example.com/v1';
const MIB = 1024 ** 2;
const LAUNCHER = fileURLToPath(new URL('../../../control-plane/svc.js', import.meta.url));
/** Node loads this before `svc`. Then no file is ever closed. */
const HANGING_DISK = `data:text/javascript,${encodeURIComponent("import fs from 'node:fs'; fs.close = () => undefined; setInterval(() => undefined, 1e6);")}`;

const opened: Svc[] = [];
afterEach(() => {
  for (const svc of opened.splice(0)) svc.close();
});

function svcOf(options: SvcOptions): Svc {
  const svc = openSvc(options);
  opened.push(svc);
  return svc;
}

const answering =
  (answer: () => Response): typeof fetch =>
  async () =>
    answer();
const empty = answering(() => Response.json({ data: [], next_cursor: null }));

describe('an address of plain http', () => {
  test('is warned about once in a run, and only on standard error', async () => {
    const svc = svcOf({ baseUrl: HTTP, key: 'svc_live_x', fetch: empty });
    for (const argv of [
      ['instance', 'list'],
      ['auth', 'status'],
    ]) {
      const { code, stdout, stderr } = await svc.run(...argv);
      expect({ code, warnings: stderr.split('in clear text to api.example.com:').length - 1 }).toEqual({
        code: 0,
        warnings: 1,
      });
      expect(stdout).not.toContain('clear text');
    }
  });

  test.each([
    [{ baseUrl: 'http://127.0.0.1:8080/v1', key: 'svc_live_x' }, ['instance', 'list']],
    [{ baseUrl: 'http://[::1]:8080/v1', key: 'svc_live_x' }, ['instance', 'list']],
    [{ baseUrl: 'http://localhost/v1', key: 'svc_live_x' }, ['instance', 'list']],
    [{ baseUrl: HTTPS, key: 'svc_live_x' }, ['instance', 'list']],
    [{ baseUrl: HTTP }, ['gpu', 'list']],
  ])('is no matter on this machine, with TLS, or without a key: %j %j', async (options, argv) => {
    expect(await svcOf({ ...options, fetch: empty }).run(...argv)).toMatchObject({ code: 0, stderr: '' });
  });

  test('is refused by a login before anything is sent, unless it is allowed', async () => {
    let asked = 0;
    const counting = answering(() => ((asked += 1), Response.json({ data: [] })));
    const svc = svcOf({ input: 'svc_live_x', fetch: counting });
    for (const argv of [[], ['--with-token']]) {
      const { code, stderr } = await svc.run('auth', 'login', '--base-url', HTTP, ...argv);
      expect(code).toBe(2);
      expect(stderr).toBe(
        'svc: http:// would carry your key, and all that you send later, in clear text to api.example.com\n' +
          'Use https://, or --allow-http on a network that nobody else reads.\n',
      );
    }
    expect(asked).toBe(0);
    expect((await svc.run('auth', 'login', '--with-token', '--allow-http', '--base-url', HTTP)).code).toBe(0);
    expect(asked).toBe(1);
  });
});

test('a file of keys that others can read is told, with what to do, until that is done', async () => {
  const svc = svcOf({ input: 'svc_live_x', fetch: empty });
  await svc.run('auth', 'login', '--with-token', '--base-url', HTTPS);
  const file = join(svc.home, '.config/svc/credentials.json');
  chmodSync(file, 0o640);
  const { code, stderr } = await svc.run('instance', 'list');
  expect({ code, stderr }).toEqual({
    code: 0,
    stderr: `Warning: other users of this machine can read your keys: chmod 600 ${file}\n`,
  });
  chmodSync(file, 0o600);
  expect((await svc.run('instance', 'list')).stderr).toBe('');
});

describe('an answer without an end', () => {
  /** Sends a MiB again and again, and counts how many were taken. */
  function endless(status: number): { fetch: typeof fetch; taken: () => number } {
    let taken = 0;
    const body = (): ReadableStream<Uint8Array> =>
      new ReadableStream({ pull: (into) => ((taken += 1), into.enqueue(new Uint8Array(MIB).fill(0x20))) });
    return { fetch: answering(() => new Response(body(), { status })), taken: () => taken };
  }

  test('is not read to its end, nor asked for again', async () => {
    const { fetch, taken } = endless(200);
    const { code, stderr } = await svcOf({ baseUrl: HTTPS, key: 'svc_live_x', fetch }).run('balance');
    expect(code).toBe(1);
    expect(stderr).toBe(
      `svc: ${HTTPS} answers with more than 128 MiB\nCheck whether the address is that of the API: svc doctor\n`,
    );
    expect(taken()).toBeLessThan(135);
  });

  test('of a refusal leaves the status as its words', async () => {
    const { fetch, taken } = endless(400);
    const { code, stderr } = await svcOf({ baseUrl: HTTPS, key: 'svc_live_x', fetch }).run('balance');
    expect({ code, stderr }).toEqual({ code: 1, stderr: 'svc: the API answered 400\n' });
    expect(taken()).toBeLessThan(5);
  });
});

describe('a download', () => {
  test('into a pipe goes through it, and the pipe stays; a folder is refused before anything is asked', async () => {
    let asked = 0;
    const fetch = answering(() => ((asked += 1), new Response('content')));
    const svc = svcOf({ baseUrl: HTTPS, key: 'svc_live_x', fetch });
    const pipe = join(svc.home, 'pipe');
    execFileSync('mkfifo', [pipe]);
    const reader = spawn('cat', [pipe], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [read, { code }] = await Promise.all([
      text(reader.stdout),
      svc.run('file', 'download', 'file-1', '-o', pipe),
    ]);
    expect({ read, code, isPipe: statSync(pipe).isFIFO() }).toEqual({ read: 'content', code: 0, isPipe: true });
    const refused = await svc.run('file', 'download', 'file-1', '-o', svc.home);
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('is a folder') });
    expect(asked).toBe(1);
  });

  const run = async (answer: () => Response): Promise<{ folder: string; code: number; left: string[] }> => {
    const svc = svcOf({ baseUrl: HTTPS, key: 'svc_live_x', fetch: answering(answer) });
    writeFileSync(join(svc.home, 'x.part'), 'mine');
    const { code } = await svc.run('file', 'download', 'file-1', '-o', join(svc.home, 'x'));
    return { folder: svc.home, code, left: readdirSync(svc.home).toSorted() };
  };

  test('leaves the other files of its folder as they are', async () => {
    const { folder, code, left } = await run(() => new Response('content'));
    expect({ code, left }).toEqual({ code: 0, left: ['x', 'x.part'] });
    expect(readFileSync(join(folder, 'x'), 'utf8')).toBe('content');
    expect(readFileSync(join(folder, 'x.part'), 'utf8')).toBe('mine');
  });

  test('that hangs on a disk leaves nothing of itself at a second Ctrl-C', async () => {
    const endless = createServer((_, response) => void response.writeHead(200).write('content')).listen(0, '127.0.0.1');
    await once(endless, 'listening');
    const folder = mkdtempSync(join(tmpdir(), 'svc-download-'));
    const env = {
      HOME: folder,
      SVC_API_KEY: 'svc_live_x',
      SVC_BASE_URL: `http://127.0.0.1:${(endless.address() as AddressInfo).port}/v1`,
      NODE_OPTIONS: `--import=${HANGING_DISK}`,
    };
    const child = spawn(process.execPath, [LAUNCHER, 'file', 'download', 'file-1', '-o', join(folder, 'x')], { env });
    await expect.poll(() => readdirSync(folder).filter((name) => name.endsWith('.part'))).toHaveLength(1);
    const ended = once(child, 'exit');
    const again = setInterval(() => child.kill('SIGINT'), 100);
    expect(await ended).toEqual([130, null]);
    clearInterval(again);
    expect(readdirSync(folder).filter((name) => name.endsWith('.part'))).toEqual([]);
    endless.closeAllConnections();
    endless.close();
    rmSync(folder, { recursive: true });
  });

  test('that breaks off leaves nothing of itself', async () => {
    let isFirst = true;
    const pull = (into: ReadableStreamDefaultController<Uint8Array>): void => {
      if (isFirst) into.enqueue(new Uint8Array(8));
      else into.error(new Error('reset'));
      isFirst = false;
    };
    const { folder, code, left } = await run(() => new Response(new ReadableStream({ pull })));
    expect({ code, left, isThere: existsSync(join(folder, 'x')) }).toEqual({
      code: 1,
      left: ['x.part'],
      isThere: false,
    });
  });
});

describe('a refusal that breaks off', () => {
  const broken = (status: number): Response => {
    const pull = (stream: ReadableStreamDefaultController): void => stream.error(new TypeError('terminated'));
    return new Response(new ReadableStream({ pull }), { status });
  };

  test.each([
    [401, 4],
    [404, 3],
  ])('with status %i ends the command with %i', async (status, code) => {
    const svc = svcOf({ baseUrl: HTTPS, key: 'svc_live_x', fetch: answering(() => broken(status)) });
    expect(await svc.run('balance')).toMatchObject({ code, stderr: expect.stringContaining(`answered ${status}`) });
  });

  test('does not end a wait for an instance', async () => {
    const id = `i-${'a'.repeat(20)}`;
    let reads = 0;
    const restarting: typeof fetch = async (url) => {
      if (!new Request(url).url.endsWith(id)) return broken(503);
      reads += 1;
      return reads > 4 ? Response.json({ id, status: 'running' }) : broken(503);
    };
    const svc = svcOf({ baseUrl: HTTPS, key: 'svc_live_x', fetch: restarting });
    expect(await svc.run('wait', id)).toMatchObject({ code: 0 });
  });
});
