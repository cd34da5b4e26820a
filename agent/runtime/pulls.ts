// Pulls images in the background and reports their progress in bytes.
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import type { PullAnswer, PullLogin } from '../../shared/protocol/link.ts';
import type { DesiredWorkload } from '../../shared/protocol/workload.ts';
import type { Engine, PullNews, PullProgress } from './engine.ts';
import { createPullWatch, PullEnded, type PullWatch } from './pull-watch.ts';

export type PullStatus =
  | { state: 'none' }
  | { state: 'pulling'; progress: PullProgress | null }
  | { state: 'ready' }
  | { state: 'failed'; detail: string; fault: 'image' | 'host' };

/** An image and the workload that needs it. */
export type Wanted = Pick<DesiredWorkload, 'workload_id' | 'image' | 'pull_login'>;

export interface Pulls {
  status(wanted: Wanted): PullStatus;
  /** Begins a pull unless it is already under way or done. */
  begin(wanted: Wanted): void;
  /** Forgets the status of an image: it turned out to be gone, or no workload needs it any more. */
  forget(wanted: Wanted): void;
  /** Ends and forgets all other pulls. */
  keepOnly(wanted: readonly Wanted[]): void;
}

const TRIES = 3;
const RETRY_MS = 2_000;
/** A registry checks the token when the download of each layer begins, and an engine restarts a broken pull from its first layer. */
const TOO_SLOW = "the registry's token did not last until the image was whole";
/** The engine reports every chunk; people and the control plane need far fewer reports. */
const PROGRESS_MS = 250;

interface PullsDeps {
  clock: Clock;
  log: Log;
  pullLogin(workloadId: string): Promise<PullAnswer | null>;
  /** Frees space on the engine's disk if it can; false if the bytes still do not fit. */
  hasRoom(bytes: number): Promise<boolean>;
}

/**
 * `onChange` is called after every change of a status, and for progress a few times a second. A public image is pulled once for all
 * workloads. For a private image the control plane is asked for each workload, even if the image is already on this machine: an
 * engine gives an image that it has to everybody, without asking the registry.
 */
export function openPulls(engine: Engine, onChange: () => void, deps: PullsDeps): Pulls {
  const entries = new Map<string, Entry>();
  const set = (entry: Entry, status: PullStatus): void => {
    entry.status = status;
    if (entries.get(entry.key) === entry) onChange();
  };
  const isWanted = (entry: Entry): boolean => entries.get(entry.key) === entry;

  /** Asks until there is an answer: a control plane or registry that is away is not the image's fault. */
  const askLogin = async (entry: Entry, { workload_id, image }: Wanted): Promise<PullAnswer | null> => {
    for (;;) {
      try {
        return await deps.pullLogin(workload_id);
      } catch (error) {
        if (!isWanted(entry)) throw error;
        deps.log.warn({ workload_id, image, detail: messageOf(error) }, 'a pull got no login; it asks again soon');
        await deps.clock.sleep(RETRY_MS);
      }
    }
  };

  const pull = async (entry: Entry, wanted: Wanted): Promise<void> => {
    const { image, workload_id, pull_login: isPrivate } = wanted;
    for (let tries = 1; isWanted(entry);) {
      try {
        const login = isPrivate ? await askLogin(entry, wanted) : null;
        if (login?.kind === 'refused') return set(entry, { state: 'failed', detail: login.detail, fault: 'image' });
        const tell = slowly(deps.clock, (progress) => set(entry, { state: 'pulling', progress }));
        if ((await engine.inspectImage(image)) === undefined) await pullWatched(engine, image, { login, entry, tell });
        return set(entry, { state: 'ready' });
      } catch (error) {
        const detail = messageOf(error).slice(0, 1024);
        deps.log.warn({ workload_id, image, attempt: tries, detail }, 'an image could not be pulled');
        if (error instanceof PullEnded) return set(entry, { state: 'failed', detail, fault: error.fault });
        const wasAway = await waitForEngine(engine, deps.clock, () => isWanted(entry));
        if (!isWanted(entry)) return;
        if (wasAway) {
          entry.watch.forgive();
          continue;
        }
        const failure = failureOf(detail, { isPrivate, isLast: tries === TRIES });
        if (failure !== undefined) return set(entry, { state: 'failed', ...failure });
        await deps.clock.sleep(RETRY_MS * tries);
        tries += 1;
      }
    }
  };

  return {
    status: (wanted) => entries.get(keyOf(wanted))?.status ?? { state: 'none' },
    begin: (wanted) => {
      const key = keyOf(wanted);
      if (entries.has(key)) return;
      const entry = newEntry(wanted, entries, deps);
      entries.set(key, entry);
      onChange();
      void pull(entry, wanted);
    },
    forget: (wanted) => {
      if (entries.get(keyOf(wanted))?.status.state !== 'pulling') entries.delete(keyOf(wanted));
    },
    keepOnly: (wanted) => {
      const keys = new Set(wanted.map(keyOf));
      for (const entry of [...entries.values()].filter(({ key }) => !keys.has(key))) {
        entries.delete(entry.key);
        entry.watch.end();
      }
    },
  };
}

/** The state of one pull. A pull whose entry is no longer in the table is not needed any more. */
interface Entry {
  key: string;
  image: string;
  status: PullStatus;
  watch: PullWatch;
}

function newEntry(wanted: Wanted, entries: ReadonlyMap<string, Entry>, { clock, hasRoom }: PullsDeps): Entry {
  const { image } = wanted;
  const hasRoomBeside = (bytes: number): Promise<boolean> => hasRoom(bytes + othersBytes(image, entries.values()));
  const watch = createPullWatch({ clock, hasRoom: hasRoomBeside });
  return { key: keyOf(wanted), image, status: { state: 'pulling', progress: null }, watch };
}

/** What the pulls of other images still take on the disk. Two pulls at once must not count the same bytes as free. */
function othersBytes(image: string, entries: Iterable<Entry>): number {
  const missing = new Map<string, number>();
  // Several pulls of one private image take its space once.
  for (const { image: other, watch } of entries)
    if (other !== image) missing.set(other, Math.max(missing.get(other) ?? 0, watch.missingBytes()));
  return [...missing.values()].reduce((sum, bytes) => sum + bytes, 0);
}

function pullWatched(
  engine: Engine,
  image: string,
  how: { login: PullLogin | null; entry: Entry; tell: (progress: PullProgress) => void },
): Promise<void> {
  return how.entry.watch.during((onNews, signal) => {
    const hear = (news: PullNews): void => {
      onNews(news);
      how.tell({ done_bytes: news.done_bytes, total_bytes: news.total_bytes });
    };
    return engine.pull(image, how.login, hear, signal);
  });
}

/**
 * Waits until the engine answers. Resolves with true if it did not answer at first. Then the pull was interrupted by the end of the engine, and
 * is not counted as a failed try.
 */
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

/** The key of a private pull. It cannot equal an image's name, because no such name has a space. */
function privateKey(workloadId: string): string {
  return `for ${workloadId}`;
}

/**
 * Words of failures that may be of this host alone: its disk, its name server, its network, or a limit of the registry on its address. The
 * control plane has reached the registry a moment before, so another host may reach it too.
 */
const OF_HOST =
  /no space left on device|dial tcp|lookup |i\/o timeout|tls handshake timeout|no route to host|network is unreachable|toomanyrequests/i;

/** The reason to give up a pull, and whose fault it is; undefined if it is tried again. */
function failureOf(
  detail: string,
  { isPrivate, isLast }: { isPrivate: boolean; isLast: boolean },
): Pick<PullStatus & { state: 'failed' }, 'detail' | 'fault'> | undefined {
  if (OF_HOST.test(detail)) return isLast ? { detail, fault: 'host' } : undefined;
  const isUnauthorized = /unauthorized|denied/i.test(detail);
  // The control plane has checked the access a moment before. So the token has expired during the pull, and the next one is fresh.
  if (isPrivate && isUnauthorized) return isLast ? { detail: `${TOO_SLOW}: ${detail}`, fault: 'image' } : undefined;
  const isAnswered = /manifest unknown|not found|no such image|invalid reference/i.test(detail);
  return isLast || isUnauthorized || isAnswered ? { detail, fault: 'image' } : undefined;
}
