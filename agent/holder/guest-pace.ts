// Bounds how fast a holder reads from its container, so that a tenant who sends much cannot keep the holder from other clients.
import type { Clock } from '../../shared/clock.ts';
import { GUEST_BYTES_PER_SECOND_MAX, GUEST_FRAMES_PER_SECOND_MAX } from '../../shared/limits.ts';
import { FRAME, type Frame } from '../wire/frames.ts';

/** Called after each frame of a connection. Resolves when the next frame may be read; undefined if it may be read now. */
export type Rest = (frame: Frame) => Promise<void> | undefined;

/** Frames of one connection that are read in one turn of the event loop. */
const FRAMES_PER_TURN = 16;
/** A JSON message costs as much as so many data frames, because it is parsed. */
const MESSAGE_COST = 10;
/** After a pause, so much may be read at once. */
const BURST_MS = 100;

/** All connections of one container share the bound. Each connection yields to the event loop by itself. */
export function createGuestPace(clock: Clock): () => Rest {
  /** The time at which the frames read so far are within the bound. */
  let paidMs = clock.monotonicMs();
  const pay = ({ type, payload }: Frame): number => {
    const nowMs = clock.monotonicMs();
    const frames = type === FRAME.json ? MESSAGE_COST : 1;
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
