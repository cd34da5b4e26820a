// How fast a holder listens to its container: whoever is inside must not keep it from its other callers, however much is said.
import type { Clock } from '../../shared/clock.ts';
import { GUEST_BYTES_PER_SECOND_MAX, GUEST_FRAMES_PER_SECOND_MAX } from '../../shared/limits.ts';
import { FRAME, type Frame } from '../wire/frames.ts';

/** For one connection: after each frame. Resolves when the next one may be taken; undefined if that is now. */
export type Rest = (frame: Frame) => Promise<void> | undefined;

/** Frames of one connection in one turn of the event loop. */
const FRAMES_PER_TURN = 16;
const WORD_COST = 10;
/** What may be taken at once after a time of silence. */
const BURST_MS = 100;

/** All connections from one container share what it may say; each gives the event loop back by itself. */
export function createGuestPace(clock: Clock): () => Rest {
  /** What was taken so far is paid for at this time. */
  let paidMs = clock.monotonicMs();
  const pay = ({ type, payload }: Frame): number => {
    const nowMs = clock.monotonicMs();
    const frames = type === FRAME.json ? WORD_COST : 1;
    const costMs = (1000 * frames) / GUEST_FRAMES_PER_SECOND_MAX + (1000 * payload.length) / GUEST_BYTES_PER_SECOND_MAX;
    paidMs = Math.max(paidMs, nowMs) + costMs;
    return paidMs - nowMs;
  };
  return () => {
    let taken = 0;
    return (frame) => {
      const aheadMs = pay(frame);
      taken += 1;
      if (aheadMs > BURST_MS) return clock.sleep(aheadMs - BURST_MS / 2);
      return taken % FRAMES_PER_TURN === 0 ? clock.nextTurn() : undefined;
    };
  };
}
