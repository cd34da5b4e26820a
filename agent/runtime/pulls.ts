// Images on their way to this machine: each is pulled once at a time, in the background, with its bytes counted.
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import type { Engine, PullProgress } from './engine.ts';

export type PullStatus =
  | { state: 'none' }
  | { state: 'pulling'; progress: PullProgress | null }
  | { state: 'ready' }
  | { state: 'failed'; detail: string };

export interface Pulls {
  status(image: string): PullStatus;
  /** Begins unless it is already under way or done. */
  begin(image: string): void;
  /** Forgets what is known about an image: it turned out to be gone, or nobody wants it any more. */
  forget(image: string): void;
}

const TRIES = 3;
const RETRY_MS = 2_000;
/** An engine tells of every chunk; people and the control plane need far fewer. */
const PROGRESS_MS = 250;

/** `onChange` is called after every change of a status; progress is one, a few times a second. */
export function openPulls(engine: Engine, onChange: () => void, deps: { clock: Clock; log: Log }): Pulls {
  const statuses = new Map<string, PullStatus>();
  const set = (image: string, status: PullStatus): void => {
    statuses.set(image, status);
    onChange();
  };

  const slowly = (tell: (progress: PullProgress) => void): ((progress: PullProgress) => void) => {
    let toldMs = Number.NEGATIVE_INFINITY;
    return (progress) => {
      if (deps.clock.monotonicMs() - toldMs < PROGRESS_MS) return;
      toldMs = deps.clock.monotonicMs();
      tell(progress);
    };
  };

  const pull = async (image: string): Promise<void> => {
    const tell = slowly((progress) => set(image, { state: 'pulling', progress }));
    for (let attempt = 1; ; attempt += 1) {
      try {
        const here = await engine.inspectImage(image);
        if (here === undefined) await engine.pull(image, tell);
        return set(image, { state: 'ready' });
      } catch (error) {
        const detail = messageOf(error).slice(0, 1024);
        deps.log.warn({ image, attempt, detail }, 'an image could not be pulled');
        if (attempt === TRIES || isFinal(detail)) return set(image, { state: 'failed', detail });
        await deps.clock.sleep(RETRY_MS * attempt);
      }
    }
  };

  return {
    status: (image) => statuses.get(image) ?? { state: 'none' },
    begin: (image) => {
      if (statuses.has(image)) return;
      set(image, { state: 'pulling', progress: null });
      void pull(image);
    },
    forget: (image) => {
      if (statuses.get(image)?.state !== 'pulling') statuses.delete(image);
    },
  };
}

/** What the registry has answered for certain; asking again gives the same. */
function isFinal(detail: string): boolean {
  return /manifest unknown|not found|no such image|unauthorized|denied|invalid reference/i.test(detail);
}
