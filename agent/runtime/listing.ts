// Asks the engine for our containers, and decides whether its answer counts.
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import type { Engine, LocalContainer } from './engine.ts';

export interface Listing {
  /** Our containers, or null while the engine does not answer. Null means "unknown", never "none". */
  current(): LocalContainer[] | null;
  /** The engine's last answer, also while it is away: it has not lost anything. Null before the first answer. */
  known(): LocalContainer[] | null;
  /** How long the engine has not answered; 0 if it answers. */
  awayMs(): number;
  refresh(): Promise<void>;
}

export interface ListingDeps {
  engine: Pick<Engine, 'list'>;
  clock: Clock;
  log: Log;
  /** Workloads whose containers nothing of ours has removed or is about to remove. */
  placed: () => string[];
  /** Workloads with a step at work. Its answer may show their containers or not. */
  busy: ReadonlyMap<string, unknown>;
}

/** How long an engine that lists none of our containers is not believed, although it must have some. */
const EMPTY_MS_MAX = 10 * 60_000;
const NOTHING_LISTED =
  'the container engine lists none of the containers that this host has: the disk with its data may not be mounted';

/** An engine that starts without the disk with its data lists nothing, after a boot of the host or of the engine alone. */
export function createListing({ engine, clock, log, placed, busy }: ListingDeps): Listing {
  let known: LocalContainer[] | null = null;
  let awaySinceMs: number | null = null;
  /** Since when the engine lists none of the containers that it must have; null if it lists them. */
  let emptySinceMs: number | null = null;

  const list = async (): Promise<LocalContainer[]> => {
    const busyBefore = new Set(busy.keys());
    const listed = await engine.list();
    const seen = known;
    // What an earlier answer that counted did not show is missing already.
    const lost = placed().filter(
      (id) => !busyBefore.has(id) && !busy.has(id) && (seen === null || seen.some((one) => one.workload_id === id)),
    );
    if (listed.length > 0 || lost.length === 0) return listed;
    emptySinceMs ??= clock.monotonicMs();
    if (clock.monotonicMs() - emptySinceMs < EMPTY_MS_MAX) throw new NothingListed(NOTHING_LISTED);
    return listed;
  };
  return {
    current: () => (awaySinceMs === null ? known : null),
    known: () => known,
    awayMs: () => (awaySinceMs === null ? 0 : clock.monotonicMs() - awaySinceMs),
    refresh: async () => {
      try {
        known = await list();
        awaySinceMs = null;
        emptySinceMs = null;
      } catch (error) {
        // Time in which the engine does not answer at all says nothing about its disk.
        if (!(error instanceof NothingListed)) emptySinceMs = null;
        // Logged once per outage of the engine, not every period.
        if (awaySinceMs === null)
          log.warn(
            { detail: messageOf(error) },
            'the container engine does not answer, or lists none of its containers: they are left as they are until it does',
          );
        awaySinceMs ??= clock.monotonicMs();
      }
    },
  };
}

class NothingListed extends Error {}
