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
  for (let i = 0; i < count; i += 1) breaker.send().failed();
};
const answer = (count: number): void => {
  for (let i = 0; i < count; i += 1) breaker.send().answered();
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
    const [first, second] = [breaker.send(), breaker.send()];
    fail(5);
    await clock.advance(1_000);
    first.answered();
    second.failed();
    expect(state()).toEqual([false, 4_000]);
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
    breaker.found(false);
    expect(state()).toEqual([false, 5_000]);
  });

  test('takes one request after a look that finds it alive, and no other', async () => {
    await clock.advance(5_000);
    breaker.found(true);
    expect(breaker.takes()).toBe(true);
    breaker.send();
    expect(state()).toEqual([false, 5_000]);
  });

  test('is back once that request is answered, with all its failures forgotten', async () => {
    breaker.found(true);
    breaker.send().answered();
    expect([...state(), breaker.isOut()]).toEqual([...TAKES, false]);
    fail(4);
    expect(breaker.takes()).toBe(true);
    fail(1);
    expect(breaker.takes()).toBe(false);
  });

  test('rests again once that request fails', async () => {
    breaker.found(true);
    const trial = breaker.send();
    await clock.advance(3_000);
    trial.failed();
    expect(state()).toEqual([false, 5_000]);
  });

  test('is looked at again where nothing comes of that request within five seconds', async () => {
    breaker.found(true);
    breaker.send();
    await clock.advance(5_000);
    expect(state()).toEqual([false, 0]);
  });

  test('is left alone by a look that ends after it is back', () => {
    breaker.found(true);
    breaker.send().answered();
    breaker.found(false);
    expect(state()).toEqual(TAKES);
  });
});
