// The bounds of a pull at their edges: its time over all tries, its speed in each minute, and its size.
import { beforeEach, describe, expect, test } from 'vitest';
import type { PullNews } from '../../../agent/runtime/engine.ts';
import { createPullWatch, PullEnded, type PullWatch } from '../../../agent/runtime/pull-watch.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';

const MINUTE_MS = 60_000;
const MIB = 1024 ** 2;
const GIB = 1024 ** 3;
const UNPACKING: PullNews = { done_bytes: 1, total_bytes: 1, downloading: false };

let clock: VirtualClock;
let watch: PullWatch;
/** The bytes for which the disk was asked, in order. */
let asked: number[];
let fits: (bytes: number) => Promise<boolean>;
beforeEach(() => {
  clock = virtualClock();
  asked = [];
  fits = async () => true;
  watch = createPullWatch({
    clock,
    hasRoom: (bytes) => {
      asked.push(bytes);
      return fits(bytes);
    },
  });
});

interface Try {
  news(now: PullNews): void;
  fail(): void;
  /** How the try has ended; undefined while it goes on. */
  end(): string | undefined;
  fault(): string | undefined;
}

function begin(): Try {
  let ended: unknown;
  let tell: (now: PullNews) => void = () => undefined;
  const pull = Promise.withResolvers<void>();
  void watch
    .during((onNews) => {
      tell = onNews;
      return pull.promise;
    })
    .catch((error: unknown) => (ended = error));
  return {
    news: (now) => tell(now),
    fail: () => pull.reject(new Error('reset')),
    end: () => (ended instanceof Error ? ended.message : undefined),
    fault: () => (ended instanceof PullEnded ? ended.fault : undefined),
  };
}

describe('the time of a pull', () => {
  // docs/host.md: A pull must bring 1 MiB per second and end within 20 minutes.
  test('is twenty minutes, over all its tries', async () => {
    const first = begin();
    first.news(UNPACKING);
    await clock.advance(15 * MINUTE_MS);
    first.fail();
    await clock.advance(MINUTE_MS);
    expect(first.end()).toBe('reset');
    const second = begin();
    second.news(UNPACKING);
    await clock.advance(5 * MINUTE_MS - 1);
    expect(second.end()).toBeUndefined();
    await clock.advance(1);
    expect(second.end()).toBe('the image was not whole after 20 minutes of pulling');
    expect(second.fault()).toBe('image');
  });

  test('begins anew if this host has interrupted the tries before', async () => {
    const first = begin();
    first.news(UNPACKING);
    await clock.advance(19 * MINUTE_MS);
    first.fail();
    await clock.advance(1);
    watch.forgive();
    const second = begin();
    second.news(UNPACKING);
    await clock.advance(20 * MINUTE_MS - 1);
    expect(second.end()).toBeUndefined();
    await clock.advance(1);
    expect(second.end()).toContain('20 minutes');
  });

  test('leaves no timer behind', async () => {
    const pull = begin();
    pull.fail();
    await clock.advance(1);
    expect(clock.waiting()).toBe(0);
  });
});

describe('the speed of a pull', () => {
  const downloading = (mib: number): PullNews => ({ done_bytes: mib * MIB, total_bytes: 0, downloading: true });

  // docs/host.md: A pull must bring 1 MiB per second and end within 20 minutes.
  test('may be exactly the lowest one, in each minute', async () => {
    const pull = begin();
    for (let minute = 1; minute <= 3; minute += 1) {
      pull.news(downloading(60 * minute));
      await clock.advance(MINUTE_MS);
    }
    expect(pull.end()).toBeUndefined();
    pull.news({ ...downloading(240), done_bytes: 240 * MIB - 1 });
    await clock.advance(MINUTE_MS);
    expect(pull.end()).toBe('the registry sent 60.0 MiB in a minute: at least 1 MiB per second are needed');
    expect(pull.fault()).toBe('image');
  });

  test('counts what came in the minute alone, and not while layers are unpacked', async () => {
    const pull = begin();
    pull.news(downloading(6_000));
    await clock.advance(MINUTE_MS);
    pull.news({ ...downloading(6_000), downloading: false });
    await clock.advance(MINUTE_MS);
    expect(pull.end()).toBeUndefined();
    pull.news(downloading(6_030));
    await clock.advance(MINUTE_MS);
    expect(pull.end()).toContain('sent 30.0 MiB');
  });
});

describe('the size of a pull', () => {
  const sized = (total: number, done = 0): PullNews => ({
    done_bytes: done * GIB,
    total_bytes: total * GIB,
    downloading: true,
  });

  test('is checked when it grows: twice what is still to come must fit', async () => {
    const pull = begin();
    for (const now of [sized(0), sized(10), sized(10, 4), sized(9, 4), sized(12, 4)]) {
      pull.news(now);
      await clock.advance(1);
    }
    expect(asked).toEqual([20 * GIB, 16 * GIB]);
    expect(pull.end()).toBeUndefined();
  });

  test('is checked once at a time, and a disk that does not answer is no reason to end the pull', async () => {
    const answer = Promise.withResolvers<boolean>();
    fits = () => answer.promise;
    const pull = begin();
    pull.news(sized(10));
    pull.news(sized(11));
    answer.reject(new Error('no such device'));
    await clock.advance(1);
    expect(asked).toEqual([20 * GIB]);
    fits = async () => false;
    pull.news(sized(11));
    await clock.advance(1);
    expect(pull.end()).toBe('the disk of the host has no room for the image (11.0 GiB or more)');
    expect(pull.fault()).toBe('host');
  });
});

test('a pull that no workload needs any more ends, and no other try begins', async () => {
  const pull = begin();
  watch.end();
  await clock.advance(1);
  expect([pull.end(), pull.fault()]).toEqual(['no workload needs the image any more', 'host']);
  const next = begin();
  await clock.advance(1);
  expect(next.end()).toBe('no workload needs the image any more');
});
