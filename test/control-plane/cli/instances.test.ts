// The commands of `svc` that launch instances and wait for them.
import { createServer } from 'node:net';
import { describe, expect, test } from 'vitest';
import { LAUNCH } from '../../kit/world.ts';
import { api, openSvcForEachTest, owner, svcOf } from './svc-of-test.ts';

openSvcForEachTest();

/** The body of the last POST. */
function spiedBody(): { body: unknown; fetch: typeof fetch } {
  const spied = {
    body: undefined as unknown,
    fetch: async (url: Parameters<typeof fetch>[0], init?: RequestInit) => {
      if (init?.method === 'POST') spied.body = await new Request(url, init).json();
      return fetch(url, init);
    },
  };
  return spied;
}

const idOfLaunch = (): Promise<string> => api.world.launch(owner);

test('a launch whose answer was lost is repeated with the same key, and launches once', async () => {
  await api.world.machine();
  let calls = 0;
  const keys: (string | null)[] = [];
  const flaky: typeof fetch = async (url, init) => {
    const answer = await fetch(url, init);
    calls += 1;
    if (init?.method === 'POST') keys.push(new Headers(init.headers).get('idempotency-key'));
    if (calls === 1) throw new TypeError('fetch failed');
    return answer;
  };
  const argv = ['instance', 'create', '--image', 'busybox', '--gpu-type', LAUNCH.gpu_type ?? '', '--json'];
  const { code, stdout } = await svcOf({ fetch: flaky }).run(...argv);
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ kind: 'instance.create' });
  expect(new Set(keys).size).toBe(1);
  expect(keys).toHaveLength(2);
  const { json } = await api.call('GET', '/v1/instances', { key: owner.key });
  expect(json.data).toHaveLength(1);
});

test('a launch sends what its options say', async () => {
  const sent = spiedBody();
  const options = [
    '--env',
    'A=b=c',
    '--env',
    'E=',
    '--port',
    '8080',
    '--port',
    '8888/http/primary',
    '--port',
    '5432/tcp',
    '--entrypoint',
    '/bin/env',
    '--entrypoint',
    '-i',
    '--disk',
    '200',
    '--ssh-key',
    'k1',
    '--auto-terminate-on-exit',
  ];
  await svcOf({ fetch: sent.fetch }).run(
    'instance',
    'create',
    '--image',
    'busybox',
    ...options,
    '--',
    'sh',
    '-c',
    'echo --json',
  );
  expect(sent.body).toEqual({
    gpu_count: 1,
    tier: 'on_demand',
    image: 'busybox',
    env: { A: 'b=c', E: '' },
    ports: [
      { port: 8080, protocol: 'http' },
      { port: 8888, protocol: 'http', primary: true },
      { port: 5432, protocol: 'tcp' },
    ],
    disk_gb: 200,
    ssh_key_ids: ['k1'],
    auto_terminate_on_exit: true,
    cmd: ['sh', '-c', 'echo --json'],
    entrypoint: ['/bin/env', '-i'],
  });
  for (const [option, text] of [
    ['--env', '=value'],
    ['--port', '80/udp'],
    ['--port', '80/primary/http'],
  ] as const) {
    const refused = await svcOf().run('instance', 'create', '--image', 'busybox', option, text);
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining(`${option} must be`) });
  }
});

test('a variable without a value takes that of the caller, and an unset one is refused before anything is launched', async () => {
  const sent = spiedBody();
  const svc = svcOf({ fetch: sent.fetch, env: { HF_TOKEN: 'hf_secret=', EMPTY: '' } });
  const launched = await svc.run('instance', 'create', '--image', 'busybox', '--env', 'HF_TOKEN', '--env', 'EMPTY');
  expect(sent.body).toMatchObject({ env: { HF_TOKEN: 'hf_secret=', EMPTY: '' } });
  expect(launched.stdout + launched.stderr).not.toContain('hf_secret');
  for (const command of [
    ['instance', 'create'],
    ['run', '--rm'],
  ]) {
    const refused = await svc.run(...command, '--image', 'busybox', '--env', 'HF_TOKN');
    expect(refused).toMatchObject({ code: 2, stdout: '' });
    expect(refused.stderr).toContain('your variable HF_TOKN, which is not set: export it, or write HF_TOKN=value');
  }
});

test("an empty argument clears the image's command and its entrypoint, which are sent as empty lists", async () => {
  const sent = spiedBody();
  await svcOf({ fetch: sent.fetch }).run('instance', 'create', '--image', 'busybox', '--entrypoint', '', '--', '');
  expect(sent.body).toMatchObject({ cmd: [], entrypoint: [] });
  await svcOf({ fetch: sent.fetch }).run('instance', 'create', '--image', 'busybox');
  expect(sent.body).toEqual({ gpu_count: 1, tier: 'on_demand', image: 'busybox' });
});

test('a refusal in the words of the API names the options that stand for them', async () => {
  const { code, stderr } = await svcOf().run('instance', 'create', '--image', 'busybox');
  expect(code).toBe(1);
  expect(stderr).toContain('gpu_type is required without template_id');
  expect(stderr).toMatch(
    /\ngpu_type is --gpu-type \(svc gpu list\), template_id is --template, offering_id is --offering \(svc price list\), requirements.gpu_types is --gpu-type with several types\.\n$/,
  );
  const enroll = await svcOf().run('machine', 'enroll', '--region', 'eu', '--price', '-1');
  expect(enroll.stderr).toMatch(/price_per_hour.*\nprice_per_hour is --price\.\n$/);
});

describe('waiting', () => {
  test('wait follows an instance until it runs, one line for each change', async () => {
    await api.world.machine();
    const id = await idOfLaunch();
    let slept = 0;
    const onSleep = async (): Promise<void> => {
      slept += 1;
      if (slept === 3) await api.world.start(id);
    };
    const { code, stderr, stdout } = await svcOf({ onSleep }).run('wait', id, '--json');
    expect(code).toBe(0);
    expect(stderr.split('\n').filter((line) => line.includes('running'))).toHaveLength(1);
    expect(JSON.parse(stdout)).toMatchObject({ id, status: 'running' });
  });

  test('a wait that times out exits with 6 and names what still costs money', async () => {
    await api.world.machine();
    const id = await idOfLaunch();
    const { code, stderr } = await svcOf().run('instance', 'wait', id, '--timeout', '5', '--json');
    expect(code).toBe(6);
    const last = JSON.parse(stderr.trim().split('\n').at(-1) ?? '') as unknown;
    expect(last).toMatchObject({
      code: 'wait_timed_out',
      resource_id: id,
      next: expect.stringContaining(`svc instance delete ${id}`),
    });
  });

  test('a wait for what cannot come any more exits with 5', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    await api.world.end(owner, id);
    const { code, stderr } = await svcOf().run('wait', id);
    expect(code).toBe(5);
    expect(stderr).toMatch(/will not become running: it is terminated/);
    expect((await svcOf().run('wait', id, '--for', 'terminated')).code).toBe(0);
  });

  test('a wait for the end of an instance that has failed exits with 5 and the reason', async () => {
    await api.world.machine();
    const id = await api.world.run(owner, { auto_terminate_on_exit: true });
    await api.world.observe(id, { phase: 'failed', failure_code: 'out_of_memory' });
    await api.world.drive();
    const { code, stderr } = await svcOf().run('wait', id, '--for', 'terminated');
    expect(code).toBe(5);
    expect(stderr).toMatch(/will not become terminated: it is error: The container was killed/);
  });

  test('a network that fails meanwhile is unknown, not failed', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    let failures = 8;
    const flaky: typeof fetch = async (url, init) => {
      failures -= 1;
      if (failures >= 0) throw new TypeError('fetch failed');
      return fetch(url, init);
    };
    const { code, stderr } = await svcOf({ fetch: flaky }).run('wait', id);
    expect(code).toBe(0);
    expect(stderr).toContain('unknown: the API could not be reached');
  });

  test('an answer that breaks off, and the page of a network that wants a login, are unknown too', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    const strange = [
      () => new Response(new ReadableStream({ start: (controller) => controller.error(new TypeError('terminated')) })),
      () => new Response('<html>Sign in to the network</html>'),
    ];
    const captured: typeof fetch = async (url, init) =>
      (new Request(url).url.endsWith(id) ? strange.pop()?.() : undefined) ?? fetch(url, init);
    expect((await svcOf({ fetch: captured }).run('wait', id)).code).toBe(0);
    expect(strange).toEqual([]);
  });

  test('a key that may not read instances is refused at once', async () => {
    await api.world.machine();
    const id = await idOfLaunch();
    const { key } = await api.account(['billing: read']);
    expect(await svcOf({ key }).run('wait', id)).toMatchObject({ code: 1, stderr: expect.stringContaining('scope') });
  });

  test('a read that hangs ends with the wait', async () => {
    const hanging: typeof fetch = async (_url, init) => {
      init?.signal?.throwIfAborted();
      return new Promise((_resolve, reject) =>
        init?.signal?.addEventListener('abort', () => reject(new DOMException('aborted', 'AbortError'))),
      );
    };
    const svc = svcOf({ fetch: hanging, isLate: true });
    expect((await svc.run('wait', 'i-aaaaaaaaaaaaaaaaaaaa')).code).toBe(6);
  });

  test('Ctrl-C exits with 130 and names what still costs money', async () => {
    await api.world.machine();
    const id = await idOfLaunch();
    const svc = svcOf({ onSleep: async () => svc.interrupt() });
    const { code, stderr } = await svc.run('wait', id);
    expect(code).toBe(130);
    expect(stderr).toContain(`svc instance delete ${id}`);
  });

  test('the reason of a host cannot write to the terminal', async () => {
    await api.world.machine();
    const id = await idOfLaunch();
    const detail = 'bad\u001b]0;owned\u0007\u001b[2J image';
    await api.world.observe(id, { phase: 'failed', failure_code: 'image_unusable', detail });
    await api.world.drive();
    const { code, stderr } = await svcOf().run('wait', id);
    expect(code).toBe(5);
    expect(stderr).toContain('bad image');
    expect(stderr).toMatch(/^[^\p{Cc}]*\n[^\p{Cc}]*\n$/u);
  });

  test('reachable needs an SSH server that answers', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    const server = createServer((socket) => socket.end('SSH-2.0-test\r\n'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    const port = typeof address === 'object' ? address?.port : 0;
    const moved: typeof fetch = async (url, init) => {
      const answer = await fetch(url, init);
      if (!new Request(url).url.includes('/instances/')) return answer;
      const body = (await answer.json()) as { connection: object };
      return Response.json({ ...body, connection: { ...body.connection, hostname: '127.0.0.1', port } });
    };
    expect((await svcOf({ fetch: moved }).run('wait', id, '--for', 'reachable')).code).toBe(0);
    server.close();
    expect((await svcOf({ fetch: moved }).run('wait', id, '--for', 'reachable', '--timeout', '3')).code).toBe(6);
  });
});

test('a launch that is interrupted before it has an instance names its operation', async () => {
  let operationId = '';
  const pending: typeof fetch = async (_url, init) => {
    operationId = '01a20893-21db-7a8f-be42-0eb7943898ea';
    init?.signal?.throwIfAborted();
    return Response.json({ operation_id: operationId, state: 'pending', resource_id: null });
  };
  const svc = svcOf({ fetch: pending, onSleep: async () => svc.interrupt() });
  const { code, stderr } = await svc.run('instance', 'create', '--image', 'busybox', '--wait', '--json');
  expect(code).toBe(130);
  expect(JSON.parse(stderr)).toMatchObject({
    resource_id: operationId,
    next: expect.stringContaining(`svc instance operation ${operationId}`),
  });
});

describe('names', () => {
  test('an instance is found by its name among those of this name alone', async () => {
    await api.world.machine();
    const id = await api.world.launch(owner, { name: 'train & test' });
    const lists: string[] = [];
    const recorded: typeof fetch = (url, init) => {
      const asked = new URL(new Request(url).url);
      if (asked.pathname.endsWith('/instances')) lists.push(asked.searchParams.get('name') ?? '');
      return fetch(url, init);
    };
    const svc = svcOf({ fetch: recorded });
    expect((await svc.run('instance', 'get', 'train & test', '-q')).stdout).toBe(`${id}\n`);
    expect(lists).toEqual(['train & test']);
    await api.world.end(owner, id);
    const refused = await svc.run('instance', 'delete', 'train & test');
    expect(refused).toMatchObject({ code: 3, stderr: expect.stringContaining('svc instance list --name') as string });
    expect((await svc.run('instance', 'list', '--name', 'train & test', '-q')).stdout).toBe(`${id}\n`);
    expect((await svc.run('instance', 'list', '--name', 'train', '-q')).stdout).toBe('');
  });

  test('an instance is named by its name, unless several have it', async () => {
    await api.world.machine();
    const id = await api.world.launch(owner, { name: 'train' });
    expect((await svcOf().run('instance', 'get', 'train', '-q')).stdout).toBe(`${id}\n`);
    const other = await api.world.launch(owner, { name: 'train' });
    const { code, stderr } = await svcOf().run('instance', 'delete', 'train');
    expect(code).toBe(1);
    expect(stderr).toContain('2 instances have the name train');
    expect(stderr).toContain(`${id} (eu-west, allocating)`);
    expect(stderr).toContain(other);
  });

  test('what only reads takes the newest that has ended or failed, if none is left that has not', async () => {
    await api.world.machine();
    const svc = svcOf();
    const failed = await api.world.run(owner, { name: 'j0', auto_terminate_on_exit: true });
    await api.world.observe(failed, { phase: 'failed', failure_code: 'out_of_memory' });
    await api.world.drive();
    await api.world.clock.advance(1_000);
    const ended = await api.world.run(owner, { name: 'j0' });
    await api.world.end(owner, ended);
    expect((await svc.run('instance', 'get', 'j0', '-q')).stdout).toBe(`${ended}\n`);
    expect((await svc.run('instance', 'bill', 'j0', '-q')).stdout).toBe(`${ended}\n`);
    expect((await svc.run('wait', 'j0', '--for', 'terminated', '-q')).stdout).toBe(`${ended}\n`);
    expect((await svc.run('logs', 'j0')).stderr).toContain('This instance has no container');
    expect((await svc.run('instance', 'metrics', 'j0')).stderr).toBe('There are no figures of the last minutes.\n');
    // Only a DELETE terminates an instance that has failed.
    expect((await svc.run('instance', 'rename', 'j0', '--name', 'j1', '-q')).stdout).toBe(`${failed}\n`);
    const refused = await svc.run('wait', 'j0');
    expect(refused).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('svc instance list --name j0') as string,
    });
    await api.world.machine();
    const running = await api.world.run(owner, { name: 'j1' });
    expect((await svc.run('instance', 'get', 'j1', '-q')).stdout).toBe(`${running}\n`);
    expect((await svc.run('wait', 'j1', '-q')).stdout).toBe(`${running}\n`);
  });
});
