// Signing in with a browser: what `svc auth login` does while somebody approves the code, refuses it, or does nothing.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openSvc, type Svc } from '../../kit/svc.ts';

const CODES = {
  device_code: 'd'.repeat(43),
  user_code: 'BCDF-GHJK',
  verification_uri: 'https://api.example.com/device',
  verification_uri_complete: 'https://api.example.com/device?code=BCDF-GHJK',
  expires_in: 600,
  interval: 5,
};
const KEY = {
  access_token: 'svc_live_new',
  api_key: { id: 'apk_1', scopes: ['instances: read'], expires_at: '2026-04-01T00:00:00.000Z' },
};

/** The answers to requests for the key, in order; the last one is repeated. */
function svcAt(answers: readonly (string | object)[]): { svc: Svc; asked: () => number } {
  let asked = 0;
  const api: typeof fetch = async (url) => {
    if (!new Request(url).url.endsWith('/token')) return Response.json(CODES);
    const answer = answers[Math.min(asked, answers.length - 1)];
    asked += 1;
    if (typeof answer === 'object') return Response.json(answer);
    return Response.json({ error: answer, error_description: `It is ${answer}.` }, { status: 400 });
  };
  return { svc: openSvc({ baseUrl: 'https://api.example.com/v1', fetch: api }), asked: () => asked };
}

test('a person approves the code, and the key is stored for the user alone', async () => {
  const { svc } = svcAt(['authorization_pending', 'slow_down', 'authorization_pending', KEY]);
  const { code, stdout, stderr } = await svc.run('auth', 'login');
  expect(code).toBe(0);
  expect(stdout).toBe('');
  expect(stderr).toContain('Open https://api.example.com/device and enter the code BCDF-GHJK');
  expect(stderr).not.toContain(KEY.access_token);
  const stored = readFileSync(join(svc.home, '.config/svc/credentials.json'), 'utf8');
  expect(JSON.parse(stored)).toEqual({
    profiles: {
      default: {
        base_url: 'https://api.example.com/v1',
        api_key: 'svc_live_new',
        expires_at: '2026-04-01T00:00:00.000Z',
      },
    },
  });
  svc.close();
});

test.each(['https://api.example.com', 'https://api.example.com/'])(
  'the address %s is stored as that of the API',
  async (given) => {
    const { svc } = svcAt([KEY]);
    expect((await svc.run('auth', 'login', '--base-url', given)).code).toBe(0);
    const stored = readFileSync(join(svc.home, '.config/svc/credentials.json'), 'utf8');
    expect(JSON.parse(stored)).toMatchObject({ profiles: { default: { base_url: 'https://api.example.com/v1' } } });
    svc.close();
  },
);

test('a code that is refused ends the login at once', async () => {
  const { svc, asked } = svcAt(['authorization_pending', 'access_denied']);
  const { code, stderr } = await svc.run('auth', 'login', '--json');
  expect(code).toBe(1);
  expect(JSON.parse(stderr.trim().split('\n').at(-1) ?? '')).toMatchObject({
    code: 'access_denied',
    message: expect.stringContaining('It is access_denied.') as string,
  });
  expect(asked()).toBe(2);
  svc.close();
});

test('a code that nobody approves ends the login with 4', async () => {
  const { svc, asked } = svcAt(['authorization_pending']);
  const { code, stderr } = await svc.run('auth', 'login');
  expect(code).toBe(4);
  expect(stderr).toContain('nobody approved this machine in time');
  expect(asked()).toBe(CODES.expires_in / CODES.interval);
  svc.close();
});

test('a stored key is sent to no other server than the one that it is for, however that is named', async () => {
  const asked: string[] = [];
  const watched: typeof fetch = async (url) => (asked.push(new Request(url).url), Response.json({}));
  const svc = openSvc({ input: 'svc_live_x', fetch: watched });
  const ours = 'https://api.example.com/v1';
  await svc.run('auth', 'login', '--with-token', '--base-url', ours);
  asked.splice(0);
  for (const other of ['https://api.exmaple.com/v1', 'http://api.example.com/v1', 'https://api.example.com:8443/v1']) {
    expect(await svc.run('balance', '--base-url', other)).toMatchObject({
      code: 4,
      stderr: expect.stringContaining(`is for ${ours}, and not for ${other}`),
    });
    expect((await svc.run('auth', 'status', '--base-url', other)).code).toBe(4);
  }
  expect(asked).toEqual([]);
  expect((await svc.run('balance', '--base-url', 'https://api.example.com/v2')).code).toBe(0);
  svc.close();
});

test('an interrupted login ends with 130, and says so', async () => {
  const { svc } = svcAt(['authorization_pending']);
  svc.interrupt();
  const { code, stderr } = await svc.run('auth', 'login', '--json');
  expect(code).toBe(130);
  expect(JSON.parse(stderr.trim().split('\n').at(-1) ?? '')).toMatchObject({ code: 'interrupted' });
  svc.close();
});

test.each([
  ['of the environment', 'https://api.example.com/v1/', []],
  ['of the command line', 'https://api.example.com/v1', ['--base-url', 'https://api.example.com/v1/']],
])('the status asks the address %s, also if it ends with a slash', async (_whose, baseUrl, options) => {
  const asked: string[] = [];
  const watched: typeof fetch = async (url) => (asked.push(new Request(url).url), Response.json({}));
  const svc = openSvc({ baseUrl, key: 'svc_live_x', fetch: watched });
  const { code, stdout } = await svc.run('auth', 'status', ...options);
  expect({ code, asked }).toEqual({ code: 0, asked: ['https://api.example.com/v1/events?limit=1'] });
  expect(stdout).toContain('The API at https://api.example.com/v1 accepts');
  svc.close();
});
