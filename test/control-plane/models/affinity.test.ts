// Conversations with the same beginning go to the same server, until that server has more than its share of requests.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Upstream } from '../../../control-plane/models/catalog/models.ts';
import { affinityOf, byAffinity } from '../../../control-plane/models/gateway/upstreams.ts';
import { type FakeUpstream, openFakeUpstream } from '../../kit/fake-upstream.ts';
import { someModels } from '../../kit/models.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const KEYS = Array.from({ length: 2_000 }, (_, i) => `key-${i}`);
const system = (content: string) => ({ role: 'system' as const, content });
const user = (content: string) => ({ role: 'user' as const, content });

function servers(weights: readonly number[], open: readonly number[] = []) {
  const [model] = someModels();
  const [like] = model?.upstreams ?? [];
  if (like === undefined) throw new Error('no server');
  return weights.map((weight, i) => ({
    upstream: { ...like, base_url: `http://10.0.0.${i}:8000/v1`, weight } satisfies Upstream,
    openRequests: open[i] ?? 0,
  }));
}
const chosen = (all: ReturnType<typeof servers>, key: string): string | undefined => byAffinity(all, key)?.base_url;
const countOf = (all: ReturnType<typeof servers>): number[] => {
  const urls = KEYS.map((key) => chosen(all, key));
  return all.map(({ upstream }) => urls.filter((url) => url === upstream.base_url).length);
};

describe('the affinity key of a conversation', () => {
  const long = 'x'.repeat(2_000);
  const about = (orgId: string, model: string, ...messages: Parameters<typeof affinityOf>[2]) =>
    affinityOf(orgId, model, messages);

  test('depends on its first 1,024 characters with the roles, and on nothing after them', () => {
    const one = about('o', 'm', system(long), user('a'));
    expect(one).toBeDefined();
    expect(about('o', 'm', system(long), user('b'), user('c'))).toBe(one);
    // `system`, two line ends, and 1,016 characters.
    expect(about('o', 'm', system(`${'x'.repeat(1_017)}y`))).toBe(one);
    expect(about('o', 'm', system(`${'x'.repeat(1_016)}y`))).not.toBe(one);
    expect(about('o', 'm', user(long))).not.toBe(one);
  });

  test('depends on its organisation and its model', () => {
    const keys = [about('o', 'm', system(long)), about('p', 'm', system(long)), about('o', 'n', system(long))];
    expect(new Set(keys).size).toBe(3);
  });

  test('does not exist if the conversation has at most 1,024 characters with the roles', () => {
    const around = 'user\n\n'.length;
    expect(about('o', 'm', user('x'.repeat(1_024 - around)))).toBeUndefined();
    expect(about('o', 'm', user('x'.repeat(1_025 - around)))).toBeDefined();
    expect(about('o', 'm', user('x'.repeat(600)), user('x'.repeat(600)))).toBeDefined();
  });
});

describe('the server of a key', () => {
  test('is chosen in proportion to the weights', () => {
    const counts = countOf(servers([1, 1, 2]));
    // 500, 500 and 1,000 but for chance.
    expect(counts[0]).toBeGreaterThan(420);
    expect(counts[1]).toBeGreaterThan(420);
    expect(counts[2]).toBeGreaterThan(920);
  });

  test('stays the same if another server comes or goes', () => {
    const [three, four] = [servers([1, 1, 1]), servers([1, 1, 1, 1])];
    const moved = KEYS.filter((key) => chosen(three, key) !== chosen(four, key));
    expect(moved.every((key) => chosen(four, key) === 'http://10.0.0.3:8000/v1')).toBe(true);
    expect(moved.length).toBeGreaterThan(400);
    expect(moved.length).toBeLessThan(600);
  });

  test('is the next one in the order if the first has more than 1.25 times its share, and not before', () => {
    const key = KEYS.find((each) => chosen(servers([1, 1]), each) === 'http://10.0.0.0:8000/v1') ?? '';
    // There are 8 with the new one. 5 of them are 1.25 times the half.
    expect(chosen(servers([1, 1], [4, 3]), key)).toBe('http://10.0.0.0:8000/v1');
    expect(chosen(servers([1, 1], [5, 2]), key)).toBe('http://10.0.0.1:8000/v1');
    // Three times the weight, three times the share: 8 of 8.
    expect(chosen(servers([3, 1], [7, 0]), key)).toBe('http://10.0.0.0:8000/v1');
    expect(chosen(servers([3, 1], [8, 0]), key)).toBe('http://10.0.0.0:8000/v1');
    expect(chosen(servers([3, 1], [16, 0]), key)).toBe('http://10.0.0.1:8000/v1');
  });

  test('is found whenever there is any server', () => {
    for (let i = 0; i < 500; i += 1) {
      const open = [i % 7, (i * 3) % 11, (i * 5) % 13];
      expect(chosen(servers([1, 2, 3], open), `key-${i}`)).toBeDefined();
    }
    expect(byAffinity([], 'key')).toBeUndefined();
  });
});

describe('a chat', () => {
  let all: FakeUpstream[];
  let world: World;
  let who: WorldAccount;
  beforeEach(async () => {
    all = await Promise.all(Array.from({ length: 4 }, openFakeUpstream));
    const upstreams = all.map(({ baseUrl }) => ({ base_url: baseUrl, model: 'm' }));
    world = await openWorld(1, { settings: { models: someModels(undefined, { upstreams }) } });
    who = await world.customer(100);
  });
  afterEach(async () => {
    await world.close();
    for (const each of all) await each.close();
  });
  const ask = (beginning: string, stream: boolean) =>
    world.rooms.gateway.completeChat({
      caller: { ...who, scopes: [] },
      requestId: 'req_test',
      gone: new AbortController().signal,
      body: { model: 'small', messages: [system(beginning.padEnd(2_000, '.')), user('hi')], stream },
    });
  const asked = (): number[] => all.map((each) => each.asked.length);

  test('goes to one server with its continuations, whole and streamed; other chats go to others', async () => {
    for (let turn = 0; turn < 4; turn += 1) await ask('you are a poet', false);
    const before = asked();
    expect(before.filter((count) => count > 0)).toEqual([4]);
    await ask('you are a poet', true).catch(() => undefined);
    expect(asked()).toEqual(before.map((count) => (count === 4 ? 5 : 0)));
    for (let i = 0; i < 16; i += 1) await ask(`you are number ${i}`, false);
    expect(asked().filter((count) => count > 0).length).toBeGreaterThan(1);
  });

  test('goes to another server while its own has more than its share', async () => {
    const gate = Promise.withResolvers<void>();
    for (const each of all) each.usual = () => ({ after: gate.promise });
    const asking = Array.from({ length: 8 }, () => ask('you are a poet', false));
    for (let turn = 0; turn < 1_000 && asked().reduce((a, b) => a + b) < 8; turn += 1) await world.clock.nextTurn();
    // 1.25 times a fourth of 8, up to the next whole request.
    expect(Math.max(...asked())).toBe(3);
    gate.resolve();
    await Promise.all(asking);
  });
});
