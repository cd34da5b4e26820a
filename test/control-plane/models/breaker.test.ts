// When a failing server rests, and how it comes back. Each number is tested at both edges.
import { beforeEach, describe, expect, test } from 'vitest';
import { type Breaker, openBreaker } from '../../../control-plane/models/gateway/breaker.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';

let clock: VirtualClock;
let breaker: Breaker;
beforeEach(() => {
  clock = virtualClock();
  breaker = openBreaker(clock);
  breaker.found('well');
});

const fail = (count: number): void => {
  for (let i = 0; i < count; i += 1) breaker.send(`apk_${i % 2}`).failed();
};
const answer = (count: number): void => {
  for (let i = 0; i < count; i += 1) breaker.send('org_x').answered();
};
const state = (): [boolean, number] => [breaker.takes(), breaker.backInMs()];
const TAKES = [true, 0];

describe('a server is out', () => {
  test('after the fifth failure, and not after the fourth', () => {
    fail(4);
    expect([...state(), breaker.isOut()]).toEqual([...TAKES, false]);
    fail(1);
    expect([...state(), breaker.isOut()]).toEqual([false, 5_000, true]);
  });

  test.each([
    [9_999, false],
    [10_000, true],
  ])('if the fifth comes %d ms after the first: takes requests %s', async (ms, takes) => {
    fail(1);
    await clock.advance(ms);
    fail(4);
    expect(breaker.takes()).toBe(takes);
  });

  test('after any five within ten seconds, also if there were others long before', async () => {
    fail(4);
    await clock.advance(60_000);
    fail(4);
    expect(breaker.takes()).toBe(true);
    fail(1);
    expect(breaker.takes()).toBe(false);
  });

  test.each([
    [5, false],
    [6, true],
  ])(
    'not if it answered more requests than it failed: with %d answers between five failures it still takes requests: %s',
    (count, takes) => {
      answer(100);
      fail(1);
      answer(count);
      fail(4);
      expect(breaker.takes()).toBe(takes);
    },
  );

  test('and requests that began before change nothing when they end', async () => {
    const [first, second] = [breaker.send('org_x'), breaker.send('org_x')];
    fail(5);
    await clock.advance(1_000);
    first.answered();
    second.failed();
    expect(state()).toEqual([false, 4_000]);
  });
});

describe('a server that fails for one organisation alone', () => {
  const failFor = (orgId: string, count: number): void => {
    for (let i = 0; i < count; i += 1) breaker.send(orgId).failed();
  };

  test('goes on taking requests, however often it fails, and gets a health check', () => {
    failFor('org_a', 4);
    expect(breaker.isCheckDue()).toBe(false);
    failFor('org_a', 50);
    expect([...state(), breaker.isCheckDue()]).toEqual([...TAKES, true]);
  });

  test('is out if the health check finds it dead, and its failures are forgotten if it is well', () => {
    failFor('org_a', 5);
    breaker.found('well');
    expect([...state(), breaker.isCheckDue()]).toEqual([...TAKES, false]);
    failFor('org_b', 4);
    expect([...state(), breaker.isCheckDue()]).toEqual([...TAKES, false]);
    failFor('org_b', 1);
    breaker.found('dead');
    expect([...state(), breaker.isOut()]).toEqual([false, 5_000, true]);
  });

  test('is out at once by a failure of a second organisation among the last five', () => {
    failFor('org_a', 7);
    expect(breaker.takes()).toBe(true);
    failFor('org_b', 1);
    expect(breaker.takes()).toBe(false);
  });
});

describe('a server that answers nothing', () => {
  test('gets a health check after ten seconds without an answer, and again ten seconds later', async () => {
    await clock.advance(9_999);
    expect(breaker.isCheckDue()).toBe(false);
    await clock.advance(1);
    expect(breaker.isCheckDue()).toBe(true);
    breaker.found('well');
    expect(breaker.isCheckDue()).toBe(false);
    await clock.advance(5_000);
    breaker.send('org_x').answered();
    await clock.advance(9_999);
    expect(breaker.isCheckDue()).toBe(false);
    await clock.advance(1);
    expect(breaker.isCheckDue()).toBe(true);
  });

  test('gets a health check at once if it was never asked', () => {
    expect(openBreaker(clock).isCheckDue()).toBe(true);
  });

  test('is out if two health checks in a row find it dead, and not by one', async () => {
    await clock.advance(10_000);
    breaker.found('dead');
    expect([...state(), breaker.isCheckDue()]).toEqual([...TAKES, true]);
    breaker.found('well');
    await clock.advance(10_000);
    breaker.found('dead');
    breaker.found('dead');
    expect([...state(), breaker.isOut()]).toEqual([false, 5_000, true]);
  });

  test('is out at once while it loads its model', async () => {
    await clock.advance(10_000);
    breaker.found('loading');
    expect(state()).toEqual([false, 500]);
  });
});

describe('a server that is out', () => {
  beforeEach(() => fail(5));

  test('rests for five seconds, and then waits for a health check', async () => {
    await clock.advance(4_999);
    expect(state()).toEqual([false, 1]);
    await clock.advance(1);
    expect(state()).toEqual([false, 0]);
  });

  test('rests again after a health check that finds it dead', async () => {
    await clock.advance(5_000);
    breaker.found('dead');
    expect(state()).toEqual([false, 5_000]);
  });

  test('rests half a second if it loads its model, so that it is back soon after', async () => {
    await clock.advance(5_000);
    breaker.found('loading');
    expect(state()).toEqual([false, 500]);
    await clock.advance(500);
    expect(breaker.isCheckDue()).toBe(true);
    breaker.found('well');
    expect(breaker.takes()).toBe(true);
  });

  test('takes one request after a health check that finds it alive, and no other', async () => {
    await clock.advance(5_000);
    breaker.found('well');
    expect([breaker.takes(), breaker.isOut()]).toEqual([true, false]);
    breaker.send('org_x');
    expect([...state(), breaker.isOut()]).toEqual([false, 5_000, true]);
  });

  test('is back once that request is answered, with all its failures forgotten', async () => {
    breaker.found('well');
    breaker.send('org_x').answered();
    expect([...state(), breaker.isOut()]).toEqual([...TAKES, false]);
    fail(4);
    expect(breaker.takes()).toBe(true);
    fail(1);
    expect(breaker.takes()).toBe(false);
  });

  test('rests again once that request fails', async () => {
    breaker.found('well');
    const trial = breaker.send('org_x');
    await clock.advance(3_000);
    trial.failed();
    expect(state()).toEqual([false, 5_000]);
  });

  test('gets another health check if that request has no result within five seconds', async () => {
    breaker.found('well');
    breaker.send('org_x');
    await clock.advance(5_000);
    expect(state()).toEqual([false, 0]);
  });

  test('ignores a health check that ends after it is back', () => {
    breaker.found('well');
    breaker.send('org_x').answered();
    breaker.found('dead');
    expect(state()).toEqual(TAKES);
  });
});
