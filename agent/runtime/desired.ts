// The desired state that this host holds: the last complete list of workloads that the control plane has sent, kept on disk.
//
// `desired.json` holds one HeldState: (epoch, revision), the whole list, and a pair of clock readings. There are no partial lists.
//
//     take(message)   older or equal -> false, only the clock pair in memory is renewed
//                     newer          -> written to disk, then it becomes `held`, then true
//     disk full       the write fails -> it becomes `held` in memory anyway, and every later keep() tries the write again.
//                     Refusing it would be worse: it may contain the removal that frees the disk.
//     damaged file    counts as "nothing held": no workload is wanted, and none is stopped.
//
// Order: a later epoch wins, then a later revision. Example: held (2, 40). (2, 39) and (2, 40) are ignored, (2, 41) and (3, 1) are
// taken. The epoch rises when a control plane was restored from a backup, so a restored plane with a lower revision still counts.
//
// Time: end times and quarantines follow the control plane's clock, because a supplier can set the host's clock. Each message
// carries `now_ms`. The agent keeps it beside its own monotonic counter, which counts from boot, and adds what has passed since:
//
//     server_ms 1_000_000, monotonic 5_000; now monotonic 65_000   -> serverNowMs() = 1_060_000
//     restart of the agent, same boot                              -> same pair from disk, same result
//     reboot: the counter began at 0, now monotonic 10_000         -> 1_010_000, behind by the time that the host was off
//
// After a reboot the time is behind until the next message. A workload may then end late, but never too early.
//
// What must never happen: an older state replaces a newer one, or something acts on a state before its write was tried.
import { join } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../../shared/clock.ts';
import type { Log } from '../../shared/log.ts';
import { Revision, type DesiredMessage } from '../../shared/protocol/link.ts';
import { DesiredWorkload } from '../../shared/protocol/workload.ts';
import type { StateFiles } from '../host/state.ts';

const HeldState = z.strictObject({
  ...Revision.shape,
  workloads: z.array(DesiredWorkload),
  /** The control plane's clock when this state came, our monotonic counter at that moment, and the boot that the counter belongs to. */
  server_clock: z.strictObject({ server_ms: z.int(), monotonic_ms: z.number(), boot_id: z.string() }),
});
export type HeldState = z.infer<typeof HeldState>;

export interface Desired {
  held(): HeldState | undefined;
  /** The control plane's time in epoch ms, independent of this host's clock. After a reboot it is behind until the next message. */
  serverNowMs(): number;
  /** False if `serverNowMs` may be behind: after a reboot until the next message, and before the first one. */
  knowsTime(): boolean;
  /**
   * Stores a newer state, then holds it. Resolves with false if it is not newer than all that have come before. If the write fails, the
   * state takes effect for this process anyway: the workloads that it removes may be what has filled the disk.
   */
  take(message: DesiredMessage): Promise<boolean>;
  /** Tries a failed write again, because an agent that restarts now would read the older state. Never rejects. */
  keep(): Promise<void>;
}

interface DesiredDeps {
  files: StateFiles;
  log: Log;
  clock: Clock;
  bootId: string;
}

/** Loads the stored state; a damaged file counts as nothing held. */
export async function openDesired(stateDir: string, deps: DesiredDeps): Promise<Desired> {
  const { files, log, clock, bootId } = deps;
  const file = join(stateDir, 'desired.json');
  let held = await files.read(file, HeldState).catch((error: unknown) => {
    log.error({ err: error }, 'the stored desired state is damaged; waiting for a new one');
    return undefined;
  });
  let serverClock = held === undefined ? undefined : sinceBoot(held.server_clock, bootId);
  let knowsTime = held?.server_clock.boot_id === bootId;
  /** The state that should be on disk. */
  let newest = held;
  let isStored = true;
  let stored = Promise.resolve();
  /** Writes one after another; each writes the newest state at that time. */
  const store = (): Promise<void> => {
    stored = stored.then(async () => {
      try {
        await files.write(file, newest);
        isStored = true;
      } catch (error) {
        // Logged once, not at every further try.
        if (isStored) log.error({ err: error }, 'the desired state could not be stored yet; it takes effect anyway');
        isStored = false;
      }
    });
    return stored;
  };
  const desired: Desired = {
    held: () => held,
    serverNowMs: () => {
      if (serverClock === undefined) return clock.now();
      return serverClock.server_ms + Math.round(clock.monotonicMs() - serverClock.monotonic_ms);
    },
    knowsTime: () => knowsTime,
    take: async ({ epoch, revision, workloads, now_ms }) => {
      knowsTime = true;
      serverClock = { server_ms: now_ms, monotonic_ms: clock.monotonicMs(), boot_id: bootId };
      const next = { epoch, revision, workloads, server_clock: serverClock };
      // `held` may be behind: a newer state that has come on another connection can still wait for its write.
      if (newest !== undefined && !isNewer(next, newest)) {
        await desired.keep();
        return false;
      }
      newest = next;
      await store();
      held = next;
      return true;
    },
    keep: async () => {
      if (!isStored) await store();
    },
  };
  return desired;
}

/** The counter restarts at 0 with each boot. After a reboot, at least the time since that boot has passed. */
function sinceBoot(serverClock: HeldState['server_clock'], bootId: string): HeldState['server_clock'] {
  return serverClock.boot_id === bootId ? serverClock : { ...serverClock, monotonic_ms: 0 };
}

/** True if `a` was decided after `b`: a later epoch, or a later revision of the same epoch. */
function isNewer(a: Revision, b: Revision): boolean {
  return a.epoch > b.epoch || (a.epoch === b.epoch && a.revision > b.revision);
}
