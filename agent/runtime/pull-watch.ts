// A pull may be slow and its image large, but not without end: a registry that trickles would hold GPUs, and an image could fill the disk.
import type { Clock } from '../../shared/clock.ts';
import { PULL_BYTES_PER_SECOND_MIN, PULL_MS_MAX } from '../../shared/limits.ts';
import type { PullNews } from './engine.ts';

/** A pull that we have ended; its message says why. */
export class PullEnded extends Error {
  /** Another host may have more room; no other host has a faster registry. */
  readonly fault: 'image' | 'host';
  constructor(message: string, fault: 'image' | 'host') {
    super(message);
    this.fault = fault;
  }
}

export interface PullWatch {
  /** Runs one try. Rejects as it does, or with PullEnded. */
  during(pull: (onNews: (news: PullNews) => void, signal: AbortSignal) => Promise<void>): Promise<void>;
  /** The tries so far were cut short by this host itself: their time does not count. */
  forgive(): void;
  /** Nobody wants the image any more. */
  end(): void;
}

interface WatchDeps {
  clock: Clock;
  /** Makes room on the engine's disk if it can; false if so many bytes do not fit. */
  hasRoom(bytes: number): Promise<boolean>;
}

const WINDOW_MS = 60_000;
const MIB = 1024 ** 2;
/** Unpacked, layers take about twice what is downloaded. */
const UNPACKED = 2;

/** For all tries of one image. */
export function createPullWatch({ clock, hasRoom }: WatchDeps): PullWatch {
  let spentMs = 0;
  let stop = new AbortController();
  const runUntilStopped = async (pull: Promise<void>, signal: AbortSignal): Promise<void> => {
    const stopped = new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason));
    });
    await Promise.race([pull, stopped]);
  };
  return {
    during: async (pull) => {
      stop = new AbortController();
      const { signal } = stop;
      const startedMs = clock.monotonicMs();
      const sized = createSizeCheck(hasRoom, (reason) => stop.abort(reason));
      let news: PullNews = { done_bytes: 0, total_bytes: 0, downloading: true };
      const speed = watchSpeed(
        clock,
        () => news,
        (reason) => stop.abort(reason),
      );
      const minutes = PULL_MS_MAX / 60_000;
      const late = new PullEnded(`the image was not whole after ${minutes} minutes of pulling`, 'image');
      const cancelLate = clock.after(Math.max(0, PULL_MS_MAX - spentMs), () => stop.abort(late));
      const onNews = (now: PullNews): void => {
        news = now;
        sized(now);
      };
      try {
        await runUntilStopped(pull(onNews, signal), signal);
      } finally {
        speed();
        cancelLate();
        spentMs += clock.monotonicMs() - startedMs;
      }
    },
    forgive: () => void (spentMs = 0),
    end: () => stop.abort(new PullEnded('nobody wants the image any more', 'host')),
  };
}

/** Looks every minute; returns what ends it. */
function watchSpeed(clock: Clock, news: () => PullNews, slow: (reason: PullEnded) => void): () => void {
  const least = (PULL_BYTES_PER_SECOND_MIN * WINDOW_MS) / 1000;
  let beforeBytes = 0;
  let cancel = (): void => undefined;
  const look = (): void => {
    cancel = clock.after(WINDOW_MS, () => {
      const { done_bytes: done, downloading } = news();
      if (downloading && done - beforeBytes < least) {
        const mib = ((done - beforeBytes) / MIB).toFixed(1);
        const rule = `${PULL_BYTES_PER_SECOND_MIN / MIB} MiB per second`;
        slow(new PullEnded(`the registry sent ${mib} MiB in a minute: at least ${rule} are needed`, 'image'));
        return;
      }
      beforeBytes = done;
      look();
    });
  };
  look();
  return () => cancel();
}

/** At most one look at the disk at a time, and one after each change of what is known to come. */
function createSizeCheck(hasRoom: WatchDeps['hasRoom'], full: (reason: PullEnded) => void): (news: PullNews) => void {
  let checked = 0;
  let checking = false;
  return ({ total_bytes: total, done_bytes: done }) => {
    if (checking || total <= checked) return;
    [checking, checked] = [true, total];
    void hasRoom((total - done) * UNPACKED)
      .then((fits) => {
        const gib = (total / 1024 ** 3).toFixed(1);
        if (!fits) full(new PullEnded(`the disk of the host has no room for the image (${gib} GiB or more)`, 'host'));
      })
      .catch(() => undefined)
      .finally(() => (checking = false));
  };
}
