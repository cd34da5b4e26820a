// Asks the engine for our containers, and decides whether its answer counts.
//
// An engine that is started without the disk with its data lists no container. That must not end the rentals of the host. Somebody may also have
// removed the last container, and then its rental must end at once, because its customer pays. The engine itself shows which of the two it is: it
// stores our networks beside the containers, and the network that the agent keeps in advance outlasts each container.
//
//     before          now, disk is there        now, disk is away
//     container c     -                         -
//     networks n, s   s (n goes with c)         -
//     verdict         c is gone: at once        unknown: for ten minutes
//
// If no such network is left (somebody has removed unused networks, or the agent has just started), the second verdict counts.
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
  /** Why the engine is not believed although it answers, and for how long, in words for people; empty if it is believed or away. */
  doubt(): string;
  refresh(): Promise<void>;
}

export interface ListingDeps {
  engine: Pick<Engine, 'list' | 'hasItsData'>;
  clock: Clock;
  log: Log;
  /** Workloads with a container that we have not removed and are not about to remove. */
  placed: () => string[];
  /** Workloads with a step at work. The answer of the engine may show their containers or not. */
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
    // A container that the last answer did not show, although that answer counted, is known to be gone. It is not lost now.
    const lost = placed().filter(
      (id) => !busyBefore.has(id) && !busy.has(id) && (seen === null || seen.some((one) => one.workload_id === id)),
    );
    if (listed.length > 0 || lost.length === 0) return listed;
    // The disk may have come back after the engine had given this answer.
    if (await engine.hasItsData()) return engine.list();
    emptySinceMs ??= clock.monotonicMs();
    if (clock.monotonicMs() - emptySinceMs < EMPTY_MS_MAX) throw new NothingListed(NOTHING_LISTED);
    return listed;
  };
  return {
    current: () => (awaySinceMs === null ? known : null),
    known: () => known,
    awayMs: () => (awaySinceMs === null ? 0 : clock.monotonicMs() - awaySinceMs),
    doubt: () => {
      if (emptySinceMs === null) return '';
      const minutes = Math.ceil((EMPTY_MS_MAX - (clock.monotonicMs() - emptySinceMs)) / 60_000);
      return `${NOTHING_LISTED}. If this lasts, they count as gone in ${minutes} minute${minutes === 1 ? '' : 's'}`;
    },
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
