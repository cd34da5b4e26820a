// When an organisation may be mailed. Pure.
import type { SentLetter } from './store.ts';
import type { Topic } from './topics.ts';

/** The time from an event to its letter. Events of the same minute, as of all instances of a host, become one letter. */
export const GATHER_MS = 60_000;
/** The shortest time between two letters of one topic. */
export const SPAN_MS = 15 * 60_000;
/** The letters of an organisation, of all topics, within LETTERS_WINDOW_MS. Each goes to at most PEOPLE_MAX people. */
export const LETTERS_MAX = 8;
export const LETTERS_WINDOW_MS = 3_600_000;
export const PEOPLE_MAX = 20;
/** What is older than this is not told any more, and a mail that cannot be sent is given up. */
export const TELL_MS_MAX = 24 * 3_600_000;

/** A machine without a link for less than this has only a short trouble with its network, or starts again. */
export const OFFLINE_MS = 10 * 60_000;
/** A machine that is not on offer for less than this may only have a new Docker Engine, or an agent that starts again. */
export const OFF_OFFER_MS = 10 * 60_000;

const RETRY_MS = [60_000, 5 * 60_000, 15 * 60_000, 30 * 60_000];
const LAST_RETRY_MS = 3_600_000;

/** When the next letter of the topic may be made. `recent` are the letters of the last LETTERS_WINDOW_MS, newest first. */
export function mayWriteFromMs(topic: Topic, recent: readonly SentLetter[]): number {
  const last = recent.find((letter) => letter.topic === topic);
  const first = recent[LETTERS_MAX - 1];
  return Math.max(
    last === undefined ? 0 : last.created_ms + SPAN_MS,
    first === undefined ? 0 : first.created_ms + LETTERS_WINDOW_MS,
  );
}

/** The wait after this many attempts that have failed. */
export function retryAfterMs(attempts: number): number {
  return RETRY_MS[attempts - 1] ?? LAST_RETRY_MS;
}
