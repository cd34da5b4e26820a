// The open requests of each model server decide which one is asked next. The end of a request counts once, however often it is reported.
import { expect, test } from 'vitest';
import type { Upstream } from '../../../control-plane/models/catalog/models.ts';
import { openCounts } from '../../../control-plane/models/gateway/counts.ts';
import { openUpstreams } from '../../../control-plane/models/gateway/upstreams.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const upstream = (name: string, patch: Partial<Upstream> = {}): Upstream =>
  ({ base_url: `http://${name}/v1`, model: 'm', weight: 1, max_open_requests: 1, ...patch }) as Upstream;

function openTwo(patch: Partial<Upstream> = {}) {
  const all = [upstream('one'), upstream('two', patch)];
  const upstreams = openUpstreams({ clock: virtualClock(), counts: openCounts() });
  const next = (): string | undefined => upstreams.next(all, { affinity: undefined, asked: [] })?.base_url;
  return { all, upstreams, next };
}

test('a server with as many open requests as it may have is not asked', () => {
  const { all, upstreams, next } = openTwo();
  const turns = all.map((each) => upstreams.begin(each, 'key'));
  expect(next()).toBeUndefined();
  turns[1]?.over();
  expect(next()).toBe('http://two/v1');
});

test('a request whose end is reported twice ends once', () => {
  const { all, upstreams, next } = openTwo();
  const turns = all.map((each) => upstreams.begin(each, 'key'));
  turns[0]?.over();
  turns[0]?.over();
  expect(next()).toBe('http://one/v1');
  upstreams.begin(all[0] ?? upstream('one'), 'key');
  expect(next()).toBeUndefined();
});

test('failures are counted by server, and those of all replicas of a model together', () => {
  const counts = openCounts();
  const upstreams = openUpstreams({ clock: virtualClock(), counts });
  const nothing = { enter: () => () => undefined, note: () => undefined };
  const replica = (id: string): Upstream => upstream(id, { replica: { id, ...nothing } as never });
  for (const each of [upstream('one'), replica('rep-1'), replica('rep-2')]) upstreams.begin(each, 'key').failed();
  expect(counts.failures()).toEqual([
    { upstream: 'http://one/v1', count: 1 },
    { upstream: 'replicas of m', count: 2 },
  ]);
});

test('the least busy server for its weight is asked', () => {
  const { all, upstreams, next } = openTwo({ weight: 3, max_open_requests: 9 });
  const [one, two] = all;
  for (const expected of [two, two, one]) {
    expect(next()).toBe(expected?.base_url);
    upstreams.begin(expected ?? upstream('none'), 'key');
  }
});

test('a server is checked as the file of models has it now, and not as it was when it was asked first', async () => {
  const { all, upstreams, next } = openTwo();
  next();
  const changed = all.map((each) => ({ ...each, apiKey: 'new' }));
  const checked: unknown[] = [];
  await upstreams.check(changed, async ({ apiKey }) => {
    checked.push(apiKey);
    return 'well';
  });
  expect(checked).toEqual(['new', 'new']);
});
