// When an engine is believed that lists none of our containers: the disk with its data may be away, or they may really be gone.
import { beforeEach, expect, test } from 'vitest';
import { createListing, type Listing } from '../../../agent/runtime/listing.ts';
import type { LocalContainer } from '../../../agent/runtime/engine.ts';
import { createLog } from '../../../shared/log.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';

const OURS = { id: 'c', workload_id: 'w', running: true, started: true, gpu_uuids: [], mount_sources: [] };
const MINUTE_MS = 60_000;

/** The next answer of the engine; undefined: it gives none. */
let answer: LocalContainer[] | undefined;
/** Whether the engine shows that it has the same data as before. */
let hasItsData: () => boolean;
/** What happens while the engine is asked. */
let meanwhile: () => void;
let placed: string[];
let busy: Map<string, readonly string[]>;
let clock: VirtualClock;
let lines: string[];
let listing: Listing;
beforeEach(() => {
  [answer, placed, busy, lines] = [[], ['w'], new Map(), []];
  meanwhile = () => undefined;
  hasItsData = () => false;
  clock = virtualClock();
  const engine = {
    list: async () => {
      meanwhile();
      if (answer === undefined) throw new Error('no answer');
      return answer;
    },
    hasItsData: async () => hasItsData(),
  };
  const log = createLog('test', 'warn', { write: (line: string) => void lines.push(line) });
  listing = createListing({ engine, clock, log, placed: () => placed, busy });
});

const after = async (ms: number, next: LocalContainer[] | undefined = answer): Promise<LocalContainer[] | null> => {
  clock.jump(ms);
  answer = next;
  await listing.refresh();
  return listing.current();
};

test('an empty list is the truth if no container is recorded', async () => {
  placed = [];
  expect(listing.known()).toBeNull();
  expect([await after(0), listing.awayMs(), lines]).toEqual([[], 0, []]);
});

test.each([
  ['the first answer', async () => undefined],
  ['an answer after another', async () => void (await after(0, [OURS]))],
])('%s that is empty counts after ten minutes, and nothing is known meanwhile', async (_what, before) => {
  await before();
  const known = listing.known();
  expect(await after(0, [])).toBeNull();
  expect(await after(10 * MINUTE_MS - 1, [])).toBeNull();
  expect([listing.known(), listing.awayMs()]).toEqual([known, 10 * MINUTE_MS - 1]);
  expect(lines).toHaveLength(1);
  expect(lines[0]).toContain('may not be mounted');
  expect(await after(1, [])).toEqual([]);
  expect(await after(1, [])).toEqual([]);
});

test('time without any answer is not time with an empty list', async () => {
  await after(0, [OURS]);
  await after(0, []);
  answer = undefined;
  expect(await after(20 * MINUTE_MS, undefined)).toBeNull();
  expect(await after(0, [])).toBeNull();
  expect(await after(10 * MINUTE_MS - 1, [])).toBeNull();
  expect(await after(1, [])).toEqual([]);
});

test('a list that shows the containers again counts at once, and the next empty one waits anew', async () => {
  await after(0, []);
  expect(await after(9 * MINUTE_MS, [OURS])).toEqual([OURS]);
  expect(listing.awayMs()).toBe(0);
  expect(await after(2 * MINUTE_MS, [])).toBeNull();
});

test('a container that was missing before in an answer that counted does not make an empty list doubtful', async () => {
  const other = { ...OURS, id: 'd', workload_id: 'x' };
  expect(await after(0, [other])).toEqual([other]);
  expect(await after(0, [])).toEqual([]);
});

test.each(['before', 'after'])('a step that is at work %s the answer may have removed the container', async (when) => {
  await after(0, [OURS]);
  if (when === 'before') busy.set('w', []);
  meanwhile = () => void (when === 'before' ? busy.delete('w') : busy.set('w', []));
  expect(await after(0, [])).toEqual([]);
});

test('an engine that shows that it has the same data as before is believed at once', async () => {
  await after(0, [OURS]);
  hasItsData = () => true;
  expect([await after(0, []), listing.awayMs(), lines]).toEqual([[], 0, []]);
});

test('an engine that gets its disk back while it is asked lists its containers', async () => {
  await after(0, [OURS]);
  hasItsData = () => {
    answer = [OURS];
    return true;
  };
  expect(await after(0, [])).toEqual([OURS]);
});

test('the doubt about an empty list is told with the time that is left, and ends with a list or without an answer', async () => {
  await after(0, [OURS]);
  expect(listing.doubt()).toBe('');
  await after(0, []);
  const words = 'the disk with its data may not be mounted. If this lasts, they count as gone in';
  expect(listing.doubt()).toContain(`${words} 10 minutes`);
  await after(9 * MINUTE_MS);
  expect(listing.doubt().endsWith(`${words} 1 minute`)).toBe(true);
  answer = undefined;
  await after(0);
  expect(listing.doubt()).toBe('');
  await after(0, []);
  await after(10 * MINUTE_MS);
  expect([listing.current(), listing.doubt()]).toEqual([[], '']);
});
