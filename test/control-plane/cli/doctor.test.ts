// `svc doctor`: what it finds, and that it never waits long for anything.
import { expect, test } from 'vitest';
import { api, openSvcForEachTest, owner, svcOf } from './svc-of-test.ts';

openSvcForEachTest();

test('doctor finds what is wrong, and exits with 1 if anything is', async () => {
  const good = await svcOf().run('doctor', '--json');
  const { checks } = JSON.parse(good.stdout) as { checks: { check: string; ok: boolean; next: string }[] };
  const bad = checks.filter(({ ok }) => !ok).map(({ check }) => check);
  // The clock of this test stands still in another year.
  expect(bad).toEqual(['clock']);
  expect(good.code).toBe(1);
  const lost = await svcOf({ baseUrl: 'http://127.0.0.1:1/v1' }).run('doctor');
  expect(lost.code).toBe(1);
  expect(lost.stdout).toMatch(/FAIL {2}api/);
  expect(lost.stdout).toMatch(/Check the address, your proxy/);
});

test('doctor names the cause once if nobody answers, and leaves out what needs an answer', async () => {
  const down: typeof fetch = async () => {
    const cause = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
    throw new TypeError('fetch failed', { cause });
  };
  const { stdout, stderr } = await svcOf({ fetch: down }).run('doctor');
  expect(stdout).toMatch(/^FAIL {2}api {7}http:\S+ could not be reached: ECONNREFUSED$/m);
  expect(stdout).toMatch(/^skip {2}clock {5}not checked: it needs api\n/m);
  expect(stdout).toMatch(/^skip {2}key {7}not checked: it needs api\n/m);
  expect(stdout).toMatch(
    /^skip {2}account {3}not checked: it needs key\nskip {2}balance {3}not checked: it needs key\n/m,
  );
  expect(stdout).toMatch(/^skip {2}stream {4}not checked: it needs key\n/m);
  expect(stdout).not.toContain('svc doctor');
  expect(stderr).toMatch(/^svc: 1 of 8 checks failed/);
});

test('doctor does not advise itself if the network fails between two checks', async () => {
  const breaking: typeof fetch = async (url, init) => {
    if (new Request(url).url.includes('/gpu-types')) return fetch(url, init);
    throw new TypeError('fetch failed', { cause: new Error('read ECONNRESET') });
  };
  const { stdout } = await svcOf({ fetch: breaking }).run('doctor');
  expect(stdout).toMatch(/^FAIL {2}key {7}\S+ could not be reached: read ECONNRESET\n +Check the address, your proxy/m);
  expect(stdout).not.toContain('svc doctor');
});

test('doctor says since when and why an organisation is suspended, and what that keeps it from', async () => {
  expect((await svcOf().run('doctor')).stdout).toMatch(/^ok {4}account {3}not suspended$/m);
  await api.world.rooms.accounts.suspendOrg(owner.orgId, 'unpaid');
  const since = new Date(api.world.clock.now()).toISOString();
  const { stdout, code } = await svcOf().run('doctor');
  expect(stdout).toMatch(new RegExp(`^FAIL  account   suspended by the operator since ${since}: unpaid$`, 'm'));
  expect(stdout).toMatch(/^ +Until .* nothing that costs money can start\. Ask the operator\.$/m);
  expect(code).toBe(1);
});

test('doctor shows whole cents of the balance', async () => {
  const broken: typeof fetch = async (url, init) =>
    new Request(url).url.endsWith('/balance') ? Response.json({ available: '0.13945556' }) : fetch(url, init);
  expect((await svcOf({ fetch: broken }).run('doctor')).stdout).toMatch(/^ok {4}balance {3}\$0\.13 available$/m);
});

test('doctor takes an API that is older than it for no failure', async () => {
  const old: typeof fetch = async (url, init) =>
    new Request(url).url.endsWith('/organisation') ? Response.json({}, { status: 404 }) : fetch(url, init);
  expect((await svcOf({ fetch: old }).run('doctor')).stdout).toMatch(/^ok {4}account {3}.* does not say/m);
});

/** Answers of this server never come. */
const silent =
  (asked: (signal: AbortSignal | null | undefined) => void = () => undefined): typeof fetch =>
  (_url, init) =>
    new Promise((_resolve, reject) => {
      init?.signal?.addEventListener('abort', () => reject(new Error('aborted')));
      asked(init?.signal);
    });

test('doctor prints what it has found so far, while a later check waits', async () => {
  const svc = svcOf({ fetch: silent(() => svc.interrupt()) });
  expect(await svc.run('doctor')).toEqual({
    code: 130,
    stdout: 'ok    name      127.0.0.1 is 127.0.0.1\n',
    stderr: 'svc: interrupted\n',
  });
});

test('doctor gives up a check that has no answer in time, and goes on with the next one', async () => {
  const { code, stdout, stderr } = await svcOf({ fetch: silent(), isLate: true }).run('doctor');
  expect(code).toBe(1);
  expect(stdout).toMatch(/^FAIL {2}api +no answer after 10 s$/m);
  expect(stdout).toMatch(/^(ok  |FAIL) {2}ssh/m);
  expect(stderr).toMatch(/^svc: \d of 8 checks failed/);
  // The API answers, and holds back what needs a key.
  const half: typeof fetch = async (url, init) =>
    new Request(url).url.includes('/gpu-types') ? Response.json({}) : silent()(url, init);
  const late = await svcOf({ fetch: half, isLate: true }).run('doctor');
  expect(late.stdout).toMatch(/^FAIL {2}key +no answer after 10 s$/m);
});

test('doctor asks once: a person who waits learns more from the first answer than from the fourth', async () => {
  let [sent, slept] = [0, 0];
  const refusing: typeof fetch = async () => {
    sent += 1;
    throw new TypeError('fetch failed');
  };
  const onSleep = async (): Promise<void> => void (slept += 1);
  await svcOf({ fetch: refusing, onSleep }).run('doctor');
  // The other checks need an answer to this one.
  expect({ sent, slept }).toEqual({ sent: 1, slept: 0 });
  const withoutKey: typeof fetch = (url, init) =>
    new Request(url).url.includes('/gpu-types') ? fetch(url, init) : refusing(url, init);
  await svcOf({ fetch: withoutKey, onSleep }).run('doctor');
  expect({ sent, slept }).toEqual({ sent: 2, slept: 0 });
});

test('the words of a refusal cannot write to the terminal', async () => {
  const detail = 'gone\u001b[2J\nok    key       accepted';
  const refusing: typeof fetch = async (url, init) =>
    new Request(url).url.includes('/gpu-types')
      ? fetch(url, init)
      : Response.json({ error: { code: 'x', message: detail } }, { status: 400 });
  const { stdout } = await svcOf({ fetch: refusing }).run('doctor');
  expect(stdout).toMatch(/^FAIL {2}key {7}gone ok {4}key {7}accepted$/m);
});

test('a key that may not follow events is no fault of a proxy', async () => {
  const { key } = await api.account(['instances: read', 'billing: read']);
  const { stdout } = await svcOf({ key }).run('doctor');
  expect(stdout).toMatch(/^FAIL {2}stream {4}This API key lacks the scope "events: read"/m);
  expect(stdout).toMatch(/^ +Waiting falls back to asking again\.$/m);
  expect(stdout).not.toContain('proxy on the way');
});
