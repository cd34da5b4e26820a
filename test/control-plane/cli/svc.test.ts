// The program `svc`: exit codes and errors, signing in, tables, chat, doctor and completion.
import { statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { openLogins } from '../../../control-plane/cli/config.ts';
import { buildProgram } from '../../../control-plane/cli/svc.ts';
import type { Role } from '../../../shared/api/auth.ts';
import { addPerson } from '../../kit/people.ts';
import { api, baseUrl, openSvcForEachTest, owner, svcOf } from './svc-of-test.ts';

openSvcForEachTest();

describe('exit codes and errors', () => {
  test.each([
    [['nonsense'], 2, /unknown command/],
    [['instance', 'get'], 2, /missing required argument/],
    [['key', 'add', '--name', 'x'], 2, /required option '--file/],
    [['key', 'add', '--name', 'x', '--file', '/nowhere'], 2, /--file <path> names a file that cannot be read/],
    [['file', 'upload', '/nowhere'], 2, /\/nowhere cannot be read: ENOENT/],
    [['file', 'upload', '/'], 2, /\/ cannot be read: it is no file/],
    [['api', 'POST', '/files', '--body', '@/nowhere'], 2, /--body @\/nowhere cannot be read: ENOENT/],
    [['wait', 'x', '--timeout', '0'], 2, /must be more than 0/],
    [['wait', 'x', '--for', 'never'], 2, /must be running, terminated, reachable/],
    [['cp', 'a', 'b'], 2, /one of the two paths must be on an instance/],
    [['instance', 'get', 'i-aaaaaaaaaaaaaaaaaaaa'], 3, /There is no instance/],
    [['instance', 'get', 'no-such-name'], 3, /no instance has the id or name no-such-name/],
    [['instance', 'create', '--image', 'busybox', '--count', '0'], 1, /gpu_count must be/],
    [['--help'], 0, /^$/],
  ])('svc %j exits with %i', async (argv, code, stderr) => {
    const result = await svcOf().run(...argv);
    expect(result.code).toBe(code);
    expect(result.stderr).toMatch(stderr);
  });

  test('without a login, and with a wrong key, it exits with 4 and says how to sign in', async () => {
    const nobody = await svcOf({ key: undefined }).run('balance');
    expect(nobody).toMatchObject({ code: 4, stdout: '' });
    expect(nobody.stderr).toBe(
      'svc: you are not signed in\nRun svc auth login, or set SVC_API_KEY and SVC_BASE_URL.\n',
    );
    const empty = await svcOf({ key: '', baseUrl: '' }).run('balance');
    expect(empty).toEqual(nobody);
    const wrong = await svcOf({ key: 'svc_live_wrong' }).run('balance', '--json');
    expect(wrong.code).toBe(4);
    expect(JSON.parse(wrong.stderr)).toMatchObject({
      code: 'unauthorized',
      next: 'Sign in: svc auth login',
      request_id: expect.stringMatching(/^req_/),
    });
  });

  test('wrong usage with --json is an object too', async () => {
    for (const argv of [
      ['instance', 'list', '--bogus'],
      ['api', 'GET', '/instances', '--body', '{}'],
    ]) {
      const { code, stdout, stderr } = await svcOf().run(...argv, '--json');
      expect({ code, stdout, lines: stderr.split('\n').length }).toEqual({ code: 2, stdout: '', lines: 2 });
      expect(JSON.parse(stderr)).toMatchObject({ code: 'usage', message: expect.stringMatching(/--bogus|--body/) });
    }
  });

  test('a model that does not exist is not found, with the id of the request', async () => {
    const { code, stderr } = await svcOf().run('chat', 'no-such-model', 'hello', '--json');
    expect(code).toBe(3);
    expect(JSON.parse(stderr)).toMatchObject({
      code: 'model_not_found',
      request_id: expect.stringMatching(/^req_/),
    });
  });

  test('--json of a program that is launched is not an option of svc', async () => {
    const { stderr } = await svcOf({ key: undefined }).run('run', '--image', 'busybox', '--', 'prog', '--json');
    expect(stderr).toMatch(/^svc: you are not signed in/);
  });

  test.each([['svc_live_first\nsvc_live_second'], ['svc_live_\u00e9t\u00e9'], ['svc_live_two words']])(
    'the key %j is refused before it is sent, and is not printed',
    async (key) => {
      let sent = 0;
      const counting: typeof fetch = (url, init) => {
        sent += 1;
        return fetch(url, init);
      };
      const { code, stderr } = await svcOf({ key, fetch: counting }).run('balance');
      expect({ code, sent }).toEqual({ code: 4, sent: 0 });
      expect(stderr).toMatch(/^svc: the API key is not one line of visible ASCII characters\nCheck SVC_API_KEY/);
      expect(stderr).not.toContain('svc_live_');
    },
  );

  test.each([
    [['balance']],
    [['auth', 'status']],
    [['doctor', '--base-url', 'http://127.0.0.1:1/v1']],
    [['api', 'GET', '/instances']],
    [['instance', 'create', '--image', 'busybox']],
  ])('svc %j ends at the first Ctrl-C, although the API does not answer', async (argv) => {
    const silent: typeof fetch = (_url, init) =>
      new Promise((_resolve, reject) => {
        init?.signal?.addEventListener('abort', () => reject(new Error('aborted')));
        svc.interrupt();
      });
    const svc = svcOf({ fetch: silent });
    const { code, stderr } = await svc.run(...argv);
    expect(code).toBe(130);
    expect(stderr).toMatch(/^svc: interrupted\n/);
    expect(stderr.includes('may have been accepted')).toBe(argv.includes('create'));
  });

  test('the words of a refusal cannot write to the terminal', async () => {
    const detail = 'gone\u001b[2J\u001b]0;owned\u0007\nsvc: all is well';
    const refusing: typeof fetch = async () =>
      Response.json({ error: { code: 'x', message: detail } }, { status: 400 });
    expect((await svcOf({ fetch: refusing }).run('balance')).stderr).toBe('svc: gone svc: all is well\n');
  });

  test('an address at which nobody answers is no failure of the instance', async () => {
    const result = await svcOf({ baseUrl: 'http://127.0.0.1:1/v1' }).run('balance', '--json');
    expect(result.code).toBe(1);
    expect(JSON.parse(result.stderr)).toMatchObject({
      code: 'unreachable',
      next: expect.stringContaining('svc doctor'),
    });
  });
});

describe('auth', () => {
  test('a key from standard input is checked, stored for the user alone, and used from then on', async () => {
    const svc = svcOf({ key: undefined, baseUrl: undefined, input: `${owner.key}\n` });
    const signedIn = await svc.run('auth', 'login', '--with-token', '--base-url', baseUrl);
    expect(signedIn).toMatchObject({ code: 0, stdout: '' });
    const file = join(svc.home, '.config/svc/credentials.json');
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(join(file, '..')).mode & 0o777).toBe(0o700);
    expect((await svc.run('balance')).code).toBe(0);
    const status = await svc.run('auth', 'status');
    expect(status.stdout).toContain(`${file} (profile default)`);
    expect(status.stdout + status.stderr + signedIn.stderr).not.toContain(owner.key);
    expect((await svc.run('auth', 'token')).stdout).toBe(`${owner.key}\n`);
    await svc.run('auth', 'logout');
    expect((await svc.run('balance')).code).toBe(4);
  });

  test('a key that the API refuses is not stored', async () => {
    const svc = svcOf({ key: undefined, input: 'svc_live_wrong\n' });
    expect((await svc.run('auth', 'login', '--with-token')).code).toBe(4);
    expect((await svc.run('auth', 'token')).code).toBe(4);
  });

  /** Signs in with the approval of a person of this role. */
  const signIn = async (role: Role): Promise<{ svc: ReturnType<typeof svcOf>; exit: number; stderr: string }> => {
    const person = await addPerson(api.world, { orgId: owner.orgId, role });
    let code = '';
    const spy: typeof fetch = async (url, init) => {
      const answer = await fetch(url, init);
      const { user_code: userCode } = (await answer.clone().json()) as { user_code?: string };
      code = userCode ?? code;
      return answer;
    };
    let slept = 0;
    const onSleep = async (): Promise<void> => {
      slept += 1;
      if (slept === 2) await api.call('POST', `/v1/auth/device/${code}/approve`, { as: person });
      await api.world.clock.advance(5_000);
    };
    const svc = svcOf({ key: undefined, fetch: spy, onSleep });
    const { code: exit, stderr } = await svc.run('auth', 'login');
    return { svc, exit, stderr };
  };

  test('a member approves the code of this machine, and the key that the API makes is used from then on', async () => {
    const { svc, exit, stderr } = await signIn('member');
    expect(stderr).not.toContain('less than was asked for');
    expect(stderr).toContain('Signed in with the key apk_');
    expect(exit).toBe(0);
    const listed = await svc.run('api', 'GET', 'balance', '--json');
    expect(JSON.parse(listed.stdout)).toMatchObject({ currency: 'USD' });
    for (const path of ['/api-keys', '/v1/members']) expect((await svc.run('api', 'GET', path)).code).toBe(0);
    const body = JSON.stringify({ name: 'ci', scopes: ['instances: read'] });
    expect((await svc.run('api', 'POST', '/api-keys', '--body', body)).stderr).toContain('api_keys: write');
  });

  test('a person whose role is narrow gets a key for what the role may do, and is told so', async () => {
    const { svc, exit, stderr } = await signIn('billing');
    expect(exit).toBe(0);
    expect(stderr).toMatch(/Your role allows less than was asked for\. The key may do: .*billing: read/);
    expect((await svc.run('balance')).code).toBe(0);
    const refused = await svc.run('instance', 'list');
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toContain('instances: read');
  });

  test('profiles are told apart, and the environment has precedence', async () => {
    const svc = svcOf({ key: undefined, baseUrl: undefined, input: owner.key });
    await svc.run('auth', 'login', '--with-token', '--base-url', baseUrl, '--profile', 'work');
    expect((await svc.run('balance')).code).toBe(4);
    expect((await svc.run('balance', '--profile', 'work')).code).toBe(0);
    const file = join(svc.home, '.config/svc/credentials.json');
    writeFileSync(file, 'not JSON');
    const broken = await svc.run('balance', '--profile', 'work');
    expect(broken).toMatchObject({ code: 1, stderr: expect.stringContaining('cannot be read') });
  });
});

describe('output', () => {
  test('a list is a table whose columns stand below each other; an empty one says so', async () => {
    expect((await svcOf().run('key', 'list')).stdout).toBe('none\n');
    await api.world.machine();
    const id = await api.world.launch(owner, { name: 'a' });
    const lines = (await svcOf().run('instance', 'list')).stdout.trimEnd().split('\n');
    expect(lines).toHaveLength(2);
    const at = lines[0]?.indexOf('STATUS') ?? 0;
    expect(lines[1]?.startsWith(id)).toBe(true);
    expect(lines[1]?.slice(at)).toMatch(/^allocating /);
  });

  test('what a terminal would obey is left out of a table', async () => {
    await api.world.machine();
    const id = await api.world.launch(owner);
    const name = 'a\u009b31mred';
    await api.world.db.tx('name', (tx) => tx.run(sql`update instances set name = ${name} where id = ${id}`));
    const { stdout } = await svcOf().run('instance', 'list');
    expect(stdout.replaceAll('\n', '')).not.toMatch(/\p{Cc}/u);
    expect(stdout).toContain('red');
  });

  test('a page that is not the last one names the next', async () => {
    await api.world.machine();
    await api.world.launch(owner);
    await api.world.launch(owner);
    const { stderr } = await svcOf().run('instance', 'list', '--limit', '1');
    const [, cursor = ''] = /--cursor (\S+)/.exec(stderr) ?? [];
    expect((await svcOf().run('instance', 'list', '--limit', '1', '--cursor', cursor, '-q')).stdout).toMatch(/^i-/);
  });

  test('api sends any request', async () => {
    const body = JSON.stringify({ name: 'ci', scopes: ['instances: read'] });
    const { stdout } = await svcOf().run('api', 'post', '/v1/api-keys', '--body', body);
    expect(JSON.parse(stdout)).toMatchObject({ name: 'ci', key: expect.stringMatching(/^svc_live_/) });
    expect((await svcOf({ input: body }).run('api', 'POST', 'api-keys', '--body', '-', '--json')).code).toBe(0);
    expect((await svcOf().run('api', 'POST', 'api-keys', '--body', '{')).code).toBe(2);
  });
});

test('chat prints the answer as it comes, and with --json each piece of it', async () => {
  const pieces = ['Hel', 'lo'].map((content) => ({ choices: [{ delta: { content } }] }));
  const model: typeof fetch = async () =>
    new Response(
      `: ping\n\n${pieces.map((piece) => `data: ${JSON.stringify(piece)}\r\n\r\n`).join('')}data: [DONE]\n\n`,
    );
  expect((await svcOf({ fetch: model }).run('chat', 'm', 'say', 'hello')).stdout).toBe('Hello\n');
  const { stdout } = await svcOf({ fetch: model, input: 'hello' }).run('chat', 'm', '--json');
  expect(
    stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown),
  ).toEqual(pieces);
});

test.each([
  ['was refused', 'data: {"error":{"code":"upstream_error","message":"There is no model m."}}\n\ndata: [DONE]\n\n', ''],
  ['broke off', 'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n', 'Hel'],
  [
    'broke off with an error',
    'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\ndata: {"error":{"code":null,"message":"the model server broke off"}}\n\ndata: [DONE]\n\n',
    'Hel',
  ],
])('a chat whose answer %s exits with 1, and says why', async (_what, answer, shown) => {
  const model: typeof fetch = async () => new Response(answer);
  expect(await svcOf({ fetch: model }).run('chat', 'm', 'hello')).toEqual({
    code: 1,
    stdout: `${shown}\n`,
    stderr: expect.stringMatching(
      /^svc: (There is no model m|the answer broke off|the model server broke off)/,
    ) as string,
  });
});

test('the limit of an answer must be a number', async () => {
  expect(await svcOf().run('chat', 'm', '--max-tokens', '1k', 'hello')).toMatchObject({ code: 2, stdout: '' });
});

test('an address with a slash at its end is the same address', async () => {
  expect((await svcOf({ baseUrl: `${baseUrl}/` }).run('balance')).code).toBe(0);
  expect((await svcOf().run('balance', '--base-url', `${baseUrl}/`)).code).toBe(0);
});

test.each(['api.example.com/v1', '127.0.0.1:8080/v1', 'ftp://api.example.com/v1', 'https://', 'http://a b/v1'])(
  'the address %j is wrong usage, and nothing is asked',
  async (given) => {
    let sent = 0;
    const counting: typeof fetch = async () => ((sent += 1), Response.json({}));
    const refused = {
      code: 2,
      stderr: expect.stringMatching(/^svc: ".*" is no address of an API.*\nName it: /) as string,
    };
    expect(await svcOf({ baseUrl: given, fetch: counting }).run('balance')).toMatchObject(refused);
    expect(await svcOf({ fetch: counting }).run('balance', '--base-url', given)).toMatchObject(refused);
    expect(sent).toBe(0);
  },
);

test.each([
  ['processed', 0, /^uploading \d+ bytes\n$/],
  [
    'error',
    1,
    /svc: the file is stored, but cannot be used for training: line 1.*\n.*svc api GET \/files\/file-1\/report/,
  ],
])('an upload that is stored with the status %s exits with %i', async (status, code, told) => {
  const stored = { id: 'file-1', status, ...(status === 'error' ? { status_details: 'line 1 is empty' } : {}) };
  const storing: typeof fetch = async () => Response.json(stored);
  const result = await svcOf({ fetch: storing }).run('file', 'upload', import.meta.filename);
  expect(result).toMatchObject({ code, stderr: expect.stringMatching(told) });
  expect(result.stdout).toContain('file-1');
});

test.each(['', 'relative'])('XDG_CONFIG_HOME=%j counts as not set', (given) => {
  expect(openLogins({ HOME: '/home/ada', XDG_CONFIG_HOME: given }).folder).toBe('/home/ada/.config/svc');
});

test.each([
  ['DELETE', '/ssh-keys/x'],
  ['PATCH', '/instances/x'],
])(
  'a repeated %s has the same Idempotency-Key, so that its own effect is not taken for a refusal',
  async (method, path) => {
    const keys: (string | null)[] = [];
    const flaky: typeof fetch = async (_url, init) => {
      keys.push(new Headers(init?.headers).get('idempotency-key'));
      if (keys.length === 1) throw new TypeError('fetch failed');
      return Response.json({});
    };
    expect((await svcOf({ fetch: flaky }).run('api', method, path, '--body', '{}')).code).toBe(0);
    expect(keys).toHaveLength(2);
    expect(keys[0]).toMatch(/^[0-9a-f-]{36}$/);
    expect(keys[1]).toBe(keys[0]);
  },
);

test.each([
  ['chat', ['chat', 'm', 'hello']],
  ['upload', ['file', 'upload', import.meta.filename]],
  ['request', ['api', 'POST', '/chat/completions', '--body', '{}']],
])('a %s whose answer is lost is not sent again, because it would have a second effect', async (_what, argv) => {
  let sent = 0;
  const lost: typeof fetch = async () => {
    sent += 1;
    throw new TypeError('fetch failed');
  };
  const { code, stderr } = await svcOf({ fetch: lost }).run(...argv, '--json');
  expect(code).toBe(1);
  expect(JSON.parse(stderr.trim().split('\n').at(-1) ?? '')).toMatchObject({ code: 'unreachable' });
  expect(sent).toBe(1);
});

test.each([
  [429, 2],
  [503, 2],
  [502, 1],
])('a chat that is answered with %i is sent %i times', async (status, times) => {
  let sent = 0;
  const busy: typeof fetch = async () => {
    sent += 1;
    return sent === 1 ? new Response('{}', { status, headers: { 'retry-after': '1' } }) : new Response('');
  };
  await svcOf({ fetch: busy }).run('chat', 'm', 'hello');
  expect(sent).toBe(times);
});

test('completion knows every command and option', async () => {
  const next = async (...words: string[]): Promise<string[]> =>
    (await svcOf().run('complete', '--', ...words)).stdout.trim().split('\n');
  expect(await next()).toEqual(expect.arrayContaining(['instance', 'ssh', 'auth']));
  expect(await next('instance')).toEqual(expect.arrayContaining(['list', 'create', 'delete']));
  expect(await next('instance', 'create')).toEqual(expect.arrayContaining(['--gpu-type', '--image', '--json']));
  expect((await svcOf().run('completion', 'bash')).stdout).toContain('complete -o default -F _svc svc');
  expect((await svcOf().run('completion', 'tcsh')).code).toBe(2);
});

test('every command has a description and the option --json', () => {
  const leaves: { name: string; isDescribed: boolean; hasJson: boolean }[] = [];
  const walk = (command: ReturnType<typeof buildProgram>, path: string): void => {
    for (const each of command.commands) {
      const name = `${path} ${each.name()}`.trim();
      const flags = each.options.map(({ long }) => long);
      if (each.commands.length > 0) walk(each, name);
      else leaves.push({ name, isDescribed: each.description() !== '', hasJson: flags.includes('--json') });
    }
  };
  walk(buildProgram({} as Parameters<typeof buildProgram>[0]), '');
  const own = leaves.filter(({ name }) => !['complete', 'completion'].includes(name));
  expect(own.filter(({ isDescribed, hasJson }) => !isDescribed || !hasJson)).toEqual([]);
  expect(own.length).toBeGreaterThan(50);
});
