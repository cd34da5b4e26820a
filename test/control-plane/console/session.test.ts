// What the console does when the API refuses its session: a confirmation may have replaced the token while the request was on its way, or another
// tab the session.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Session } from '../../../shared/api/auth.ts';

interface ApiModule {
  call(method: string, path: string, body?: unknown): Promise<unknown>;
}

interface SessionModule {
  session: { value: Pick<Session, 'id'> | null | undefined };
}

/** The sources of the console are typed for a browser, so they are loaded by name. */
const [API_FILE, SESSION_FILE] = ['api.ts', 'session.ts'].map(
  (name) => `../../../control-plane/console/web/core/${name}`,
);
const { call } = (await import(String(API_FILE))) as ApiModule;
const { session } = (await import(String(SESSION_FILE))) as SessionModule;

const ADA = { id: 'ses_ada' };

/** What the service answers at a path, one answer after another; the last one again and again. */
let answers: Record<string, (object | 401)[]>;
let asked: string[];
/** The sessions that the requests have named, in the order of `asked`. */
let named: (string | undefined)[];
let reloads: number;

beforeEach(() => {
  asked = [];
  named = [];
  reloads = 0;
  session.value = ADA;
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  vi.stubGlobal('location', { reload: () => (reloads += 1) });
  vi.stubGlobal('fetch', async (path: string, { method, headers }: RequestInit) => {
    asked.push(`${method} ${path}`);
    named.push((headers as Record<string, string>)['svc-session']);
    const [next = 401, ...later] = answers[path] ?? [];
    if (later.length > 0) answers[path] = later;
    if (next !== 401) return Response.json(next);
    return Response.json({ code: 'unauthorized', detail: 'This session has ended.' }, { status: 401 });
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  session.value = undefined;
});

const SESSION = '/v1/auth/session';

/** The answer, or the code of the refusal. All waits pass at once. */
async function answered(method: string, path: string): Promise<unknown> {
  const answer = call(method, path).catch(({ code }: { code: string }) => code);
  await vi.advanceTimersByTimeAsync(5_000);
  return answer;
}

test('a read that a confirmation has overtaken is repeated once, and the page stays signed in', async () => {
  answers = { '/v1/balance': [401, { available: '1' }], [SESSION]: [ADA] };
  expect(await answered('GET', '/v1/balance')).toEqual({ available: '1' });
  expect(asked).toEqual(['GET /v1/balance', `GET ${SESSION}`, 'GET /v1/balance']);
  answers = { '/v1/balance': [401], [SESSION]: [ADA] };
  expect(await answered('GET', '/v1/balance')).toBe('unauthorized');
  expect(session.value).toEqual(ADA);
});

test('a read of the session that a confirmation has overtaken too is repeated', async () => {
  answers = { '/v1/balance': [401, { available: '1' }], [SESSION]: [401, ADA] };
  expect(await answered('GET', '/v1/balance')).toEqual({ available: '1' });
  expect(session.value).toEqual(ADA);
});

test('a change that a confirmation has overtaken is not repeated, and the page stays signed in', async () => {
  answers = { '/v1/ssh-keys': [401, {}], [SESSION]: [ADA] };
  expect(await answered('POST', '/v1/ssh-keys')).toBe('unauthorized');
  expect(asked).toEqual(['POST /v1/ssh-keys', `GET ${SESSION}`]);
  expect(session.value).toEqual(ADA);
});

test('a session that is over signs the page out', async () => {
  answers = { '/v1/balance': [401], [SESSION]: [401] };
  expect(await answered('GET', '/v1/balance')).toBe('unauthorized');
  expect(session.value).toBeNull();
});

test('requests that are refused together read the session once', async () => {
  answers = { '/v1/balance': [401, {}], '/v1/instances': [401, {}], [SESSION]: [ADA] };
  await Promise.all([answered('GET', '/v1/balance'), answered('GET', '/v1/instances')]);
  expect(asked.filter((each) => each === `GET ${SESSION}`)).toHaveLength(1);
});

test('a refused sign-in reads no session', async () => {
  session.value = null;
  answers = { '/v1/auth/sign-in': [401] };
  expect(await answered('POST', '/v1/auth/sign-in')).toBe('unauthorized');
  expect(asked).toEqual(['POST /v1/auth/sign-in']);
});

test('each request names the session that the page shows, but for the read of the session', async () => {
  answers = { '/v1/balance': [401, {}], [SESSION]: [ADA] };
  await answered('GET', '/v1/balance');
  expect(named).toEqual([ADA.id, undefined, ADA.id]);
  session.value = null;
  await answered('GET', '/v1/balance');
  expect(named.at(-1)).toBeUndefined();
});

test('a page whose session another tab has replaced is loaded again, and repeats nothing', async () => {
  answers = { '/v1/balance': [401, { available: '1' }], [SESSION]: [{ id: 'ses_bob' }] };
  expect(await answered('GET', '/v1/balance')).toBe('unauthorized');
  expect(reloads).toBe(1);
  expect(session.value).toEqual(ADA);
});
