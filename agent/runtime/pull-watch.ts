// Bounds pulls in time, speed and size. A registry that sends too slowly would keep GPUs idle, and a huge image could fill the disk.
import type { Clock } from '../../shared/clock.ts';
import { PULL_BYTES_PER_SECOND_MIN, PULL_MS_MAX } from '../../shared/limits.ts';
import type { PullNews } from './engine.ts';

/** The reason why this agent has ended a pull. */
export class PullEnded extends Error {
  /** `host`: another host may have more disk space. `image`: the registry is equally slow for every host. */
  readonly fault: 'image' | 'host';
  constructor(message: string, fault: 'image' | 'host') {
    super(message);
    this.fault = fault;
  }
}

export interface PullWatch {
  /** Runs one try under watch. Rejects with the try's own error, or with PullEnded. */
  during(pull: (onNews: (news: PullNews) => void, signal: AbortSignal) => Promise<void>): Promise<void>;
  /** The bytes that the pull still takes on the disk, as far as they are known. */
  missingBytes(): number;
  /** Resets the time spent: this host itself has interrupted the tries so far. */
  forgive(): void;
  /** Ends the pull, because no workload needs the image any more. */
  end(): void;
}

interface WatchDeps {
  clock: Clock;
  /** Frees space on the engine's disk if it can; false if the bytes still do not fit. */
  hasRoom(bytes: number): Promise<boolean>;
}

const WINDOW_MS = 60_000;
const MIB = 1024 ** 2;
/** Unpacked layers take about twice the bytes of the download. */
const UNPACKED = 2;

const NOTHING: PullNews = { done_bytes: 0, total_bytes: 0, downloading: true };

/** One watch covers all tries of one image. */
export function createPullWatch({ clock, hasRoom }: WatchDeps): PullWatch {
  let spentMs = 0;
  let stop = new AbortController();
  /** Set once no workload needs the image any more, also if that happens before a try begins. */
  let unwanted: PullEnded | undefined;
  let news = NOTHING;
  const runUntilStopped = async (pull: Promise<void>, signal: AbortSignal): Promise<void> => {
    const stopped = new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason));
    });
    await Promise.race([pull, stopped]);
  };
  return {
    during: async (pull) => {
      if (unwanted !== undefined) throw unwanted;
      stop = new AbortController();
      const { signal } = stop;
      const startedMs = clock.monotonicMs();
      const checkSize = createSizeCheck(hasRoom, (reason) => stop.abort(reason));
      const stopSpeedWatch = watchSpeed(
        clock,
        () => news,
        (reason) => stop.abort(reason),
      );
      const minutes = PULL_MS_MAX / 60_000;
      const late = new PullEnded(`the image was not whole after ${minutes} minutes of pulling`, 'image');
      const cancelLate = clock.after(Math.max(0, PULL_MS_MAX - spentMs), () => stop.abort(late));
      const onNews = (now: PullNews): void => {
        news = now;
        checkSize(now);
      };
      try {
        await runUntilStopped(pull(onNews, signal), signal);
      } finally {
        stopSpeedWatch();
        cancelLate();
        news = NOTHING;
        spentMs += clock.monotonicMs() - startedMs;
      }
    },
    missingBytes: () => missingBytes(news),
    forgive: () => void (spentMs = 0),
    end: () => {
      unwanted = new PullEnded('no workload needs the image any more', 'host');
      stop.abort(unwanted);
    },
  };
}

/** Measures the speed every minute; the returned function stops it. */
function watchSpeed(clock: Clock, news: () => PullNews, onSlow: (reason: PullEnded) => void): () => void {
  const least = (PULL_BYTES_PER_SECOND_MIN * WINDOW_MS) / 1000;
  let beforeBytes = 0;
  let cancel = (): void => undefined;
  const measure = (): void => {
    cancel = clock.after(WINDOW_MS, () => {
      const { done_bytes: done, downloading } = news();
      if (downloading && done - beforeBytes < least) {
        const mib = ((done - beforeBytes) / MIB).toFixed(1);
        const rule = `${PULL_BYTES_PER_SECOND_MIN / MIB} MiB per second`;
        onSlow(new PullEnded(`the registry sent ${mib} MiB in a minute: at least ${rule} are needed`, 'image'));
        return;
      }
      beforeBytes = done;
      measure();
    });
  };
  measure();
  return () => cancel();
}

/** Checks the disk after each change of the image's known size, at most one check at a time. */
function createSizeCheck(hasRoom: WatchDeps['hasRoom'], onFull: (reason: PullEnded) => void): (news: PullNews) => void {
  let checked = 0;
  let checking = false;
  return (news) => {
    const { total_bytes: total } = news;
    if (checking || total <= checked) return;
    [checking, checked] = [true, total];
    void hasRoom(missingBytes(news))
      .then((fits) => {
        const gib = (total / 1024 ** 3).toFixed(1);
        if (!fits) onFull(new PullEnded(`the disk of the host has no room for the image (${gib} GiB or more)`, 'host'));
      })
      .catch(() => undefined)
      .finally(() => (checking = false));
  };
}

function missingBytes({ total_bytes: total, done_bytes: done }: PullNews): number {
  return (total - done) * UNPACKED;
}
