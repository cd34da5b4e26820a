// When a server is out, and how it comes back: the numbers of it, at both edges.
import { beforeEach, describe, expect, test } from 'vitest';
import { type Breaker, openBreaker } from '../../../control-plane/models/gateway/breaker.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';

let clock: VirtualClock;
let breaker: Breaker;
beforeEach(() => {
  clock = virtualClock();
  breaker = openBreaker(clock);
});

const fail = (count: number): void => {
  for (let i = 0; i < count; i += 1) breaker.send(`apk_${i % 2}`).failed();
};
const answer = (count: number): void => {
  for (let i = 0; i < count; i += 1) breaker.send('apk_x').answered();
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
  ])('where the fifth comes %d ms after the first: takes requests %s', async (ms, takes) => {
    fail(1);
    await clock.advance(ms);
    fail(4);
    expect(breaker.takes()).toBe(takes);
  });

  test('by any five within ten seconds, also where there were others long before', async () => {
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
    'not where more was answered than failed: %d answers between five failures leave it taking: %s',
    (count, takes) => {
      answer(100);
      fail(1);
      answer(count);
      fail(4);
      expect(breaker.takes()).toBe(takes);
    },
  );

  test('and what was sent before and ends now changes nothing', async () => {
    const [first, second] = [breaker.send('apk_x'), breaker.send('apk_x')];
    fail(5);
    await clock.advance(1_000);
    first.answered();
    second.failed();
    expect(state()).toEqual([false, 4_000]);
  });
});

describe('a server that fails for one key alone', () => {
  const failFor = (apiKeyId: string, count: number): void => {
    for (let i = 0; i < count; i += 1) breaker.send(apiKeyId).failed();
  };

  test('goes on taking requests, however often it fails, and is looked at', () => {
    failFor('apk_a', 4);
    expect(breaker.isLookDue()).toBe(false);
    failFor('apk_a', 50);
    expect([...state(), breaker.isLookDue()]).toEqual([...TAKES, true]);
  });

  test('is out if the look finds it dead, and forgets its failures if it is well', () => {
    failFor('apk_a', 5);
    breaker.found('well');
    expect([...state(), breaker.isLookDue()]).toEqual([...TAKES, false]);
    failFor('apk_b', 4);
    expect([...state(), breaker.isLookDue()]).toEqual([...TAKES, false]);
    failFor('apk_b', 1);
    breaker.found('dead');
    expect([...state(), breaker.isOut()]).toEqual([false, 5_000, true]);
  });

  test('is out at once by a failure of a second key among the last five', () => {
    failFor('apk_a', 7);
    expect(breaker.takes()).toBe(true);
    failFor('apk_b', 1);
    expect(breaker.takes()).toBe(false);
  });
});

describe('a server that is out', () => {
  beforeEach(() => fail(5));

  test('rests for five seconds, and then waits for a look', async () => {
    await clock.advance(4_999);
    expect(state()).toEqual([false, 1]);
    await clock.advance(1);
    expect(state()).toEqual([false, 0]);
  });

  test('rests again after a look that finds it dead', async () => {
    await clock.advance(5_000);
    breaker.found('dead');
    expect(state()).toEqual([false, 5_000]);
  });

  test('rests half a second if it loads its model, so that it is back soon after', async () => {
    await clock.advance(5_000);
    breaker.found('loading');
    expect(state()).toEqual([false, 500]);
    await clock.advance(500);
    expect(breaker.isLookDue()).toBe(true);
    breaker.found('well');
    expect(breaker.takes()).toBe(true);
  });

  test('takes one request after a look that finds it alive, and no other', async () => {
    await clock.advance(5_000);
    breaker.found('well');
    expect(breaker.takes()).toBe(true);
    breaker.send('apk_x');
    expect(state()).toEqual([false, 5_000]);
  });

  test('is back once that request is answered, with all its failures forgotten', async () => {
    breaker.found('well');
    breaker.send('apk_x').answered();
    expect([...state(), breaker.isOut()]).toEqual([...TAKES, false]);
    fail(4);
    expect(breaker.takes()).toBe(true);
    fail(1);
    expect(breaker.takes()).toBe(false);
  });

  test('rests again once that request fails', async () => {
    breaker.found('well');
    const trial = breaker.send('apk_x');
    await clock.advance(3_000);
    trial.failed();
    expect(state()).toEqual([false, 5_000]);
  });

  test('is looked at again where nothing comes of that request within five seconds', async () => {
    breaker.found('well');
    breaker.send('apk_x');
    await clock.advance(5_000);
    expect(state()).toEqual([false, 0]);
  });

  test('is left alone by a look that ends after it is back', () => {
    breaker.found('well');
    breaker.send('apk_x').answered();
    breaker.found('dead');
    expect(state()).toEqual(TAKES);
  });
});
