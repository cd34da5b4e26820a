// Servers that fail again and again: they rest, get a health check, then one trial request, and come back.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Reply } from '../../../control-plane/base/http/route.ts';
import { type Answer, type Api, openApi } from '../../contract/api.ts';
import { expectRefused } from '../../contract/refusals.ts';
import { dripping, type FakeAnswer, type FakeUpstream, openFakeUpstream } from '../../kit/fake-upstream.ts';
import { someModels } from '../../kit/models.ts';
import { BEGIN, say } from '../../kit/stream-chunks.ts';
import { whileTimePasses } from '../../kit/virtual-clock.ts';
import { runCommand } from '../../kit/operator-commands.ts';

const PATH = '/v1/chat/completions';
const forever = new AbortController().signal;

let first: FakeUpstream;
let second: FakeUpstream;
let api: Api;
/** The addresses of the servers. */
let tested: string[];
/** Two customers send requests in turn, because failures of one alone are no evidence against a server. */
let keys: string[];
let asked = 0;
beforeEach(async () => {
  [first, second] = [await openFakeUpstream(), await openFakeUpstream()];
});
afterEach(async () => {
  await api.world.verify();
  await api.close();
  await first.close();
  await second.close();
});

async function serve(...upstreams: { base_url: string; model: string }[]): Promise<void> {
  tested = upstreams.map(({ base_url: url }) => url);
  api = await openApi({ settings: { models: someModels(undefined, { upstreams }) } });
  keys = [(await api.account()).key, (await api.account()).key];
}
const at = ({ baseUrl }: FakeUpstream, more: object = {}): { base_url: string; model: string } => ({
  base_url: baseUrl,
  model: 'm',
  ...more,
});
const askAs = (key: string | undefined, more: object = {}): Promise<Answer> =>
  api.call('POST', PATH, {
    ...(key === undefined ? {} : { key }),
    body: { model: 'small', messages: [{ role: 'user', content: 'hi' }], ...more },
  });
const ask = (more: object = {}): Promise<Answer> => askAs(keys[(asked += 1) % keys.length], more);
const askTimes = async (count: number, more?: object): Promise<void> => {
  for (let i = 0; i < count; i += 1) await ask(more);
};
/** A request whose caller may leave. */
async function begin(more: object, gone: AbortSignal): Promise<Reply> {
  const { orgId, principalId } = await api.world.customer(100);
  const body = { model: 'small', messages: [{ role: 'user' as const, content: 'hi' }], ...more };
  const caller = { orgId, principalId, scopes: [] };
  return api.world.rooms.gateway.completeChat({ caller, requestId: 'req_test', gone, body });
}
const look = (): Promise<void> => api.world.rooms.gateway.checkServers(forever);
/** Only the servers of the test: the file has other models too. */
const out = (): boolean[] =>
  api.world.rooms.gateway
    .servers()
    .filter(({ upstream }) => tested.includes(upstream))
    .map(({ isOut }) => isOut);
const askedOf = (): number[] => [first, second].map(({ asked }) => asked.length);

describe('a failure of a server', () => {
  // Specification 7.3: upstream_unavailable is returned promptly.
  test.each<[string, FakeAnswer, object?]>([
    ['answers 500', { status: 500, body: 'no' }],
    ['answers 503', { status: 503, body: 'no' }],
    ['does not take our key', { status: 401, body: 'no' }],
    ['cuts its answer off', { body: '', ending: 'cut' }],
    ['answers with no JSON', { body: 'hello' }],
    ['begins a stream with what is no chunk', { events: ['data: {"broken\n\n'] }, { stream: true }],
    ['cuts a stream off', { events: [BEGIN, say('Hel')], ending: 'cut' }, { stream: true }],
  ])('that %s makes it rest after the fifth', async (_what, answer, more) => {
    await serve(at(first));
    first.usual = () => answer;
    await askTimes(5, more);
    expect([first.asked.length, out()]).toEqual([5, [true]]);
    const refused = await ask(more);
    expectRefused(PATH, refused, 'upstream_unavailable');
    expect(refused.headers['retry-after']).toBe('5');
    expect(first.asked).toHaveLength(5);
    await api.world.clock.advance(4_001);
    expect((await ask(more)).headers['retry-after']).toBe('1');
  });

  test('that cannot be connected to counts too', async () => {
    await serve({ base_url: 'http://127.0.0.1:1/v1', model: 'm' });
    await askTimes(5);
    expect(out()).toEqual([true]);
    expect((await ask()).headers['retry-after']).toBe('5');
  });

  test('is what operators see of the server', async () => {
    await serve({ base_url: 'http://127.0.0.1:1/v1', model: 'm' });
    const listed = async (): Promise<object[]> => {
      const answer = JSON.parse(await runCommand(api.world, ['admin', 'model', 'upstreams', '--json'])) as {
        data: object[];
      };
      return answer.data.filter((row) => 'upstream' in row && row.upstream === 'http://127.0.0.1:1/v1');
    };
    await askTimes(4);
    expect(await listed()).toEqual([{ upstream: 'http://127.0.0.1:1/v1', model: 'm', is_out: false }]);
    await ask();
    expect(await listed()).toEqual([{ upstream: 'http://127.0.0.1:1/v1', model: 'm', is_out: true }]);
  });

  test.each<[string, FakeAnswer]>([
    ['takes no more for now', { status: 429, body: 'no' }],
    ['refuses the request', { status: 400, body: 'no' }],
    ['answers more than is read', { body: 'x'.repeat(17 * 1024 * 1024) }],
  ])('is not counted if it %s', async (_what, answer) => {
    await serve(at(first));
    first.usual = () => answer;
    await askTimes(6);
    expect([first.asked.length, out()]).toEqual([6, [false]]);
  });

  test.each([false, true])('is not counted if the caller leaves, as a stream %s', async (stream) => {
    await serve(at(first));
    first.usual = () => ({ ...(stream ? { events: [] } : {}), ending: 'stall' });
    for (let i = 1; i <= 6; i += 1) {
      const leave = new AbortController();
      const left = begin({ stream }, leave.signal);
      await first.came(i);
      // Until the status line is here, too.
      for (let turn = 0; turn < 50; turn += 1) await api.world.clock.nextTurn();
      leave.abort();
      await left.catch(() => undefined);
    }
    expect([out(), api.world.rooms.gateway.counts.failures()]).toEqual([[false], []]);
  });
});

test('while a server rests, others answer and it is not asked', async () => {
  await serve(at(first, { weight: 1_000 }), at(second));
  first.usual = () => ({ status: 503, body: 'no' });
  await askTimes(7);
  expect(askedOf()).toEqual([5, 7]);
  const { counts, servers } = api.world.rooms.gateway;
  expect(counts.failures()).toEqual([{ upstream: first.baseUrl, count: 5 }]);
  expect(servers()).toEqual([
    { upstream: first.baseUrl, model: 'm', isOut: true },
    { upstream: second.baseUrl, model: 'm', isOut: false },
  ]);
});

test('a server rests for both tiers of a model', async () => {
  await serve(at(first));
  const models = someModels(first.baseUrl);
  await api.close();
  api = await openApi({ settings: { models } });
  keys = [(await api.account()).key, (await api.account()).key];
  first.usual = () => ({ status: 503, body: 'no' });
  await askTimes(5);
  expectRefused(PATH, await ask({ model: 'small:economy' }), 'upstream_unavailable');
  expect(first.asked).toHaveLength(5);
});

describe('one key alone', () => {
  test('does not take a server from the others by its failures; a health check decides', async () => {
    await serve(at(first));
    first.usual = ({ body }) => (JSON.stringify(body).includes('poison') ? { status: 500, body: 'no' } : {});
    const [bad, good] = keys;
    const poison = { messages: [{ role: 'user', content: 'poison' }] };
    for (let i = 0; i < 12; i += 1) expectRefused(PATH, await askAs(bad, poison), 'upstream_error');
    expect(out()).toEqual([false]);
    expect((await askAs(good)).status).toBe(200);
    await look();
    expect([first.looks, out()]).toEqual([1, [false]]);
    first.health = { status: 500, body: 'no' };
    for (let i = 0; i < 12; i += 1) await askAs(bad, poison);
    await look();
    expect(out()).toEqual([true]);
  });

  test('a server that loads its model is skipped, and takes its first request when the model is loaded', async () => {
    await serve(at(first));
    const loading = { error: { code: 503, message: 'Loading model', type: 'unavailable_error' } };
    first.usual = () => ({ status: 503, body: loading });
    for (let i = 0; i < 8; i += 1) expectRefused(PATH, await ask(), 'upstream_unavailable');
    expect(out()).toEqual([false]);
    first.usual = () => ({});
    expect((await ask()).status).toBe(200);
  });
});

describe('a server that is out', () => {
  beforeEach(async () => {
    await serve(at(first));
    first.usual = () => ({ status: 503, body: 'no' });
    await askTimes(5);
  });

  test('gets a health check after five seconds, and not before; then one trial request brings it back', async () => {
    await api.world.clock.advance(4_999);
    await look();
    expect(first.looks).toBe(0);
    await api.world.clock.advance(1);
    expectRefused(PATH, await ask(), 'upstream_unavailable');
    await look();
    expect(first.looks).toBe(1);
    const gate = Promise.withResolvers<void>();
    first.usual = () => ({ after: gate.promise });
    const trial = ask();
    await first.came(6);
    expectRefused(PATH, await ask(), 'upstream_unavailable');
    gate.resolve();
    expect((await trial).status).toBe(200);
    expect(out()).toEqual([false]);
    expect((await Promise.all([ask(), ask(), ask()])).map(({ status }) => status)).toEqual([200, 200, 200]);
  });

  test('is brought back by a stream as soon as that begins', async () => {
    await api.world.clock.advance(5_000);
    await look();
    first.usual = () => ({ events: [BEGIN], ending: 'stall' });
    await begin({ stream: true }, forever);
    expect(out()).toEqual([false]);
  });

  test.each<[string, FakeAnswer]>([
    ['says that it is not well', { status: 503, body: 'loading' }],
    ['has failed', { status: 500, body: 'no' }],
  ])('stays out if a health check finds that it %s', async (_what, health) => {
    first.health = health;
    await api.world.clock.advance(5_000);
    await look();
    expectRefused(PATH, await ask(), 'upstream_unavailable');
    expect(first.asked).toHaveLength(5);
    await look();
    expect(first.looks).toBe(1);
  });

  test('is back within a second of the end of its loading, and no request is sent to it before', async () => {
    const loading = { error: { code: 503, message: 'Loading model', type: 'unavailable_error' } };
    first.health = { status: 503, body: loading };
    await api.world.clock.advance(5_000);
    for (let second = 1; second <= 30; second += 1) {
      await look();
      expect(first.looks).toBe(second);
      expect((await ask()).headers['retry-after']).toBe('1');
      await api.world.clock.advance(1_000);
    }
    first.health = {};
    first.usual = () => ({});
    await look();
    expect((await ask()).status).toBe(200);
    expect([first.asked.length, out()]).toEqual([6, [false]]);
  });

  test('stays out if it does not answer the health check within two seconds', async () => {
    first.health = { ending: 'stall' };
    await api.world.clock.advance(5_000);
    const looking = look();
    while (first.looks === 0) await api.world.clock.nextTurn();
    await api.world.clock.advance(2_000);
    await looking;
    expect((await ask()).headers['retry-after']).toBe('5');
  });

  test('stays out if it answers the health check byte by byte, and the check ends all the same', async () => {
    first.health = dripping(api.world.clock, ' ', { status: 503 });
    await api.world.clock.advance(5_000);
    const startMs = api.world.clock.monotonicMs();
    await whileTimePasses(api.world.clock, look(), 250);
    expect(api.world.clock.monotonicMs() - startMs).toBeLessThan(5_000);
    expect((await ask()).headers['retry-after']).toBe('5');
  });

  test('that has no health route counts as alive if it answers at all', async () => {
    first.health = { status: 404, body: 'no' };
    await api.world.clock.advance(5_000);
    await look();
    await ask();
    expect(first.asked).toHaveLength(6);
  });
});

test('failures of two keys of one organisation alone do not make a server rest: its health check decides', async () => {
  await serve(at(first));
  first.usual = () => ({ status: 500, body: { error: { message: 'caused by the text' } } });
  const one = await api.world.customer(100);
  const other = await api.world.key(one.orgId);
  for (let i = 0; i < 6; i += 1) await askAs(i % 2 === 0 ? one.key : other.key);
  expect(out()).toEqual([false]);
});

test('a server that nobody asks is checked too, and is out before a request reaches it', async () => {
  await serve(at(first), at(second));
  first.health = { status: 500, body: 'no' };
  await look();
  expect(out()).toEqual([false, false]);
  await look();
  expect(out()).toEqual([true, false]);
  expect([first.looks, second.looks]).toEqual([2, 1]);
  await askTimes(2);
  expect(askedOf()).toEqual([0, 2]);
});

test('a server that leaves the file of models is checked no more', async () => {
  await serve(at(first), at(second));
  const others = api.world.rooms.catalog.models.map((each) => ({ ...each, upstreams: each.upstreams.slice(1) }));
  api.world.rooms.catalog.replace(others);
  await look();
  expect([first.looks, second.looks]).toEqual([0, 1]);
});
