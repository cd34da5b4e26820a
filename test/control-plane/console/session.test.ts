// What the console does when the API refuses its session: a confirmation may have replaced the token while the request was on its way, or another
// tab the session.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Session } from '../../../shared/api/auth.ts';

interface ApiModule {
  call(method: string, path: string, body?: unknown): Promise<unknown>;
  onAsked(next: { confirm(): Promise<boolean> }): void;
}

interface SessionModule {
  session: { value: Pick<Session, 'id'> | null | undefined };
  signOut(): Promise<void>;
  followSignOut(stop: AbortSignal): void;
}

/** The sources of the console are typed for a browser, so they are loaded by name. */
const [API_FILE, SESSION_FILE] = ['api.ts', 'session.ts'].map(
  (name) => `../../../control-plane/console/web/core/${name}`,
);
const { call, onAsked } = (await import(String(API_FILE))) as ApiModule;
const { followSignOut, session, signOut } = (await import(String(SESSION_FILE))) as SessionModule;

const ADA = { id: 'ses_ada' };

/** What the service answers at a path, one answer after another; the last one again and again. A number is the status of a refusal. */
let answers: Record<string, (object | 401 | 403)[]>;
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
    if (next === 401)
      return Response.json({ code: 'unauthorized', detail: 'This session has ended.' }, { status: 401 });
    if (next === 403) return Response.json({ code: 'step_up_required', detail: 'Confirm it.' }, { status: 403 });
    return Response.json(next);
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  session.value = undefined;
  onAsked({ confirm: async () => false });
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

test.each([
  { who: 'the same person', later: ADA, outcome: { id: 'key_1' }, sent: 2 },
  {
    who: 'another person, who has signed in meanwhile',
    later: { id: 'ses_bob' },
    outcome: 'step_up_required',
    sent: 1,
  },
])('a change that waits for a confirmation is sent again if it comes from $who: $sent requests', async (given) => {
  onAsked({
    confirm: async () => {
      session.value = null;
      session.value = given.later;
      return true;
    },
  });
  answers = { '/v1/api-keys': [403, { id: 'key_1' }] };
  expect(await answered('POST', '/v1/api-keys')).toEqual(given.outcome);
  expect(asked).toHaveLength(given.sent);
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

describe('a sign-out in another tab', () => {
  let stop: AbortController;
  beforeEach(() => {
    stop = new AbortController();
    followSignOut(stop.signal);
  });
  afterEach(() => stop.abort());

  test('of the session that the page shows signs the page out, without a request', async () => {
    answers = { '/v1/auth/sign-out': [{}] };
    // Both tabs are this module, so the session is shown again after the first has signed out.
    await signOut();
    session.value = ADA;
    await expect.poll(() => session.value).toBeNull();
    expect(asked).toEqual(['POST /v1/auth/sign-out']);
  });

  test('of another session changes nothing', async () => {
    const heard = new BroadcastChannel('svc-signed-out');
    const once = new Promise((resolve) => (heard.onmessage = resolve));
    answers = { '/v1/auth/sign-out': [{}] };
    await signOut();
    session.value = { id: 'ses_bob' };
    await once;
    heard.close();
    expect(session.value).toEqual({ id: 'ses_bob' });
  });
});
