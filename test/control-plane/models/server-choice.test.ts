// Which server is asked, what is noted about it, and for how long a caller has to wait if there is none.
import { describe, expect, test } from 'vitest';
import type { Callable } from '../../../control-plane/models/catalog/catalog.ts';
import type { Upstream } from '../../../control-plane/models/catalog/models.ts';
import { openAttempts } from '../../../control-plane/models/gateway/attempts.ts';
import type { Health } from '../../../control-plane/models/gateway/breaker.ts';
import { openCounts } from '../../../control-plane/models/gateway/counts.ts';
import { openUpstreams } from '../../../control-plane/models/gateway/upstreams.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const server = (name: string, patch: Partial<Upstream> = {}): Upstream =>
  ({ base_url: `http://${name}/v1`, model: 'm', weight: 1, max_open_requests: 9, ...patch }) as Upstream;

function open() {
  const clock = virtualClock();
  const counts = openCounts();
  return { clock, counts, upstreams: openUpstreams({ clock, counts }) };
}
const UNBOUND = { affinity: undefined, asked: [] };

describe('a server', () => {
  test('that was asked already is not asked again for the same request', () => {
    const { upstreams } = open();
    const all = [server('one'), server('two')];
    const [one, two] = all;
    expect(upstreams.next(all, UNBOUND)).toBe(one);
    expect(upstreams.next(all, { affinity: undefined, asked: all.slice(0, 1) })).toBe(two);
    expect(upstreams.next(all, { affinity: undefined, asked: all })).toBeUndefined();
    expect(upstreams.next([], UNBOUND)).toBeUndefined();
  });

  test('counts the requests of all models that it serves under one name, and others apart', () => {
    const { upstreams } = open();
    const same = server('one', { max_open_requests: 1 });
    const slot = upstreams.begin(same, 'org');
    expect(upstreams.next([{ ...same }], UNBOUND)).toBeUndefined();
    expect(upstreams.next([{ ...same, model: 'other' }], UNBOUND)).toBeDefined();
    slot.over();
    expect(upstreams.next([{ ...same }], UNBOUND)).toBeDefined();
  });

  test('of a replica is left once, when its request has ended', () => {
    const { upstreams } = open();
    let inside = 0;
    const replica = { enter: () => ((inside += 1), () => void (inside -= 1)) } as unknown as Upstream['replica'];
    const slot = upstreams.begin(server('one', { replica } as Partial<Upstream>), 'org');
    expect(inside).toBe(1);
    slot.over();
    slot.over();
    expect(inside).toBe(0);
  });

  test('that fails or is busy is counted each time, and only failures make it rest', () => {
    const { upstreams, counts } = open();
    const one = server('one');
    for (let i = 0; i < 9; i += 1) upstreams.begin(one, `org-${i}`).busy();
    expect(upstreams.states()).toEqual([{ upstream: 'http://one/v1', model: 'm', isOut: false }]);
    for (let i = 0; i < 5; i += 1) upstreams.begin(one, `org-${i}`).failed();
    expect(upstreams.states()).toMatchObject([{ isOut: true }]);
    expect(counts.failures()).toEqual([{ upstream: 'http://one/v1', count: 14 }]);
  });
});

test('a caller waits for the first server that may be back', async () => {
  const { clock, upstreams } = open();
  const [one, two] = [server('one'), server('two')];
  const breakIt = (which: Upstream): void => {
    for (let i = 0; i < 5; i += 1) upstreams.begin(which, `org-${i}`).failed();
  };
  breakIt(one);
  await clock.advance(2_000);
  breakIt(two);
  expect(upstreams.backInMs([one, two])).toBe(3_000);
  expect(upstreams.backInMs([two])).toBe(5_000);
  expect(upstreams.backInMs([two, server('three')])).toBe(0);
});

describe('the health checks', () => {
  const looks = async (upstreams: ReturnType<typeof open>['upstreams'], all: Upstream[], health: Health = 'well') => {
    const asked: string[] = [];
    await upstreams.check(all, async ({ base_url: url }) => {
      asked.push(url);
      return health;
    });
    return asked;
  };

  test('are made of servers that have proven nothing for ten seconds', async () => {
    const { clock, upstreams } = open();
    const all = [server('one'), server('two')];
    expect(await looks(upstreams, all)).toEqual(['http://one/v1', 'http://two/v1']);
    await clock.advance(5_000);
    upstreams.begin(all[0] ?? server('none'), 'org').answered();
    await clock.advance(5_000);
    expect(await looks(upstreams, all)).toEqual(['http://two/v1']);
  });

  test('forget servers that are in no model any more, once they serve no request', async () => {
    const { upstreams } = open();
    const [old, kept] = [server('old'), server('kept')];
    const slot = upstreams.begin(old, 'org');
    await looks(upstreams, [kept]);
    expect(upstreams.states().map(({ upstream }) => upstream)).toEqual(['http://old/v1', 'http://kept/v1']);
    slot.over();
    await looks(upstreams, [kept]);
    expect(upstreams.states().map(({ upstream }) => upstream)).toEqual(['http://kept/v1']);
  });
});

describe('the attempts of a request', () => {
  const [first, second, replica] = [
    server('one'),
    server('two'),
    server('replica', { replica: {} } as Partial<Upstream>),
  ];
  const callable = { upstreams: [first, second] } as unknown as Callable;

  test('name each server by its place in the list, and all replicas as the last one', async () => {
    const clock = virtualClock();
    const attempts = openAttempts(clock);
    const note = attempts.begin(second, callable);
    await clock.advance(200);
    note('busy');
    attempts.begin(first, callable);
    const late = attempts.begin(replica, callable);
    late('answered');
    await clock.advance(50);
    late('failed');
    expect(attempts.list()).toEqual([
      { server: 2, upstream: 'http://two/v1', outcome: 'busy', ms: 200 },
      { server: 1, upstream: 'http://one/v1', outcome: 'cancelled', ms: 0 },
      { server: 3, upstream: 'http://replica/v1', outcome: 'failed', ms: 50 },
    ]);
  });
});
