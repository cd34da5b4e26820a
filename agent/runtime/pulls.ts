// Images on their way to this machine: each is pulled in the background, with its bytes counted.
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import type { PullAnswer } from '../../shared/protocol/link.ts';
import type { DesiredWorkload } from '../../shared/protocol/workload.ts';
import type { Engine, PullProgress } from './engine.ts';

export type PullStatus =
  | { state: 'none' }
  | { state: 'pulling'; progress: PullProgress | null }
  | { state: 'ready' }
  | { state: 'failed'; detail: string };

/** An image, and whom it is pulled for. */
export type Wanted = Pick<DesiredWorkload, 'workload_id' | 'image' | 'pull_login'>;

export interface Pulls {
  status(wanted: Wanted): PullStatus;
  /** Begins unless it is already under way or done. */
  begin(wanted: Wanted): void;
  /** Forgets what is known about an image: it turned out to be gone, or nobody wants it any more. */
  forget(wanted: Wanted): void;
  /** The workload is gone: its own pull means nothing any more. */
  forgetWorkload(workloadId: string): void;
}

const TRIES = 3;
const RETRY_MS = 2_000;
/** A registry asks for it where the download of a layer begins, and an engine begins a pull that broke from its first layer. */
const TOO_SLOW = "the registry's token did not last until the image was whole";
/** An engine tells of every chunk; people and the control plane need far fewer. */
const PROGRESS_MS = 250;

/**
 * `onChange` is called after every change of a status; progress is one, a few times a second. A public image is pulled once for
 * all. For a private one the control plane is asked for each workload, also where the image is on this machine by now: an engine
 * that has a digest gives it to everybody without asking the registry.
 */
export function openPulls(
  engine: Engine,
  onChange: () => void,
  deps: { clock: Clock; log: Log; pullLogin(workloadId: string): Promise<PullAnswer | null> },
): Pulls {
  const statuses = new Map<string, PullStatus>();
  const set = (key: string, status: PullStatus): void => {
    statuses.set(key, status);
    onChange();
  };
  /** What nobody wants any more stays forgotten. */
  const update = (key: string, status: PullStatus): void => {
    if (statuses.has(key)) set(key, status);
  };

  /** Asks until there is an answer: that a control plane or a registry is away is no fault of the image. */
  const askLogin = async ({ workload_id, image }: Wanted): Promise<PullAnswer | null> => {
    for (;;) {
      try {
        return await deps.pullLogin(workload_id);
      } catch (error) {
        if (!statuses.has(privateKey(workload_id))) throw error;
        deps.log.warn({ workload_id, image, detail: messageOf(error) }, 'a login for a pull is asked for again');
        await deps.clock.sleep(RETRY_MS);
      }
    }
  };

  const pull = async (wanted: Wanted): Promise<void> => {
    const { image, workload_id, pull_login: isPrivate } = wanted;
    const key = keyOf(wanted);
    const tell = slowly(deps.clock, (progress) => update(key, { state: 'pulling', progress }));
    for (let attempt = 1; ;) {
      try {
        const login = isPrivate ? await askLogin(wanted) : null;
        if (login?.kind === 'refused') return update(key, { state: 'failed', detail: login.detail });
        if ((await engine.inspectImage(image)) === undefined) await engine.pull(image, login, tell);
        return update(key, { state: 'ready' });
      } catch (error) {
        const detail = messageOf(error).slice(0, 1024);
        deps.log.warn({ workload_id, image, attempt, detail }, 'an image could not be pulled');
        const wasAway = await waitForEngine(engine, deps.clock, () => statuses.has(key));
        if (!statuses.has(key)) return;
        if (wasAway) continue;
        const failure = failureOf(detail, { isPrivate, isLast: attempt === TRIES });
        if (failure !== undefined) return update(key, { state: 'failed', detail: failure });
        await deps.clock.sleep(RETRY_MS * attempt);
        attempt += 1;
      }
    }
  };

  return {
    status: (wanted) => statuses.get(keyOf(wanted)) ?? { state: 'none' },
    begin: (wanted) => {
      if (statuses.has(keyOf(wanted))) return;
      set(keyOf(wanted), { state: 'pulling', progress: null });
      void pull(wanted);
    },
    forget: (wanted) => {
      if (statuses.get(keyOf(wanted))?.state !== 'pulling') statuses.delete(keyOf(wanted));
    },
    forgetWorkload: (workloadId) => void statuses.delete(privateKey(workloadId)),
  };
}

/** What an engine that ends leaves half done is no failure: resolves once it answers. False where it has answered all along. */
async function waitForEngine(engine: Engine, clock: Clock, isWanted: () => boolean): Promise<boolean> {
  for (let waited = false; ; waited = true) {
    try {
      await engine.version();
      return waited;
    } catch {
      if (!isWanted()) return waited;
      await clock.sleep(RETRY_MS);
    }
  }
}

function slowly(clock: Clock, tell: (progress: PullProgress) => void): (progress: PullProgress) => void {
  let toldMs = Number.NEGATIVE_INFINITY;
  return (progress) => {
    if (clock.monotonicMs() - toldMs < PROGRESS_MS) return;
    toldMs = clock.monotonicMs();
    tell(progress);
  };
}

function keyOf({ workload_id, image, pull_login: isPrivate }: Wanted): string {
  return isPrivate ? privateKey(workload_id) : image;
}

/** No image has a space in its name. */
function privateKey(workloadId: string): string {
  return `for ${workloadId}`;
}

/** What to say of a pull that is not tried again; undefined where it is. */
function failureOf(detail: string, { isPrivate, isLast }: { isPrivate: boolean; isLast: boolean }): string | undefined {
  const isUnauthorized = /unauthorized|denied/i.test(detail);
  // The control plane has proven the access a moment before: a token ran out half way, and the next one is fresh.
  if (isPrivate && isUnauthorized) return isLast ? `${TOO_SLOW}: ${detail}` : undefined;
  const isAnswered = /manifest unknown|not found|no such image|invalid reference/i.test(detail);
  return isLast || isUnauthorized || isAnswered ? detail : undefined;
}
