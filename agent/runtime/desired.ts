// The desired state this host holds: stored whole before anything acts on it, and only ever replaced by a newer one.
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
  /** What the control plane's clock showed when this state came, and what ours counted since which boot: for the time until it is told again. */
  told: z.strictObject({ server_ms: z.int(), monotonic_ms: z.number(), boot_id: z.string() }),
});
export type HeldState = z.infer<typeof HeldState>;

export interface Desired {
  held(): HeldState | undefined;
  /**
   * The control plane's time in epoch ms: what it said last, and what has passed since. Setting this host's clock does not change it,
   * nor does a restart. After a boot, whose clock may show anything, it is behind until it is told again: nothing ends too early.
   */
  serverNowMs(): number;
  /**
   * Takes a newer state, stored before it counts; resolves with false where it is older than, or the same as, what is held. Where the
   * disk does not take it, it counts for this process all the same: what is to go may be what has filled the disk.
   */
  take(message: DesiredMessage): Promise<boolean>;
  /** Tries again to store what the disk did not take: what an agent finds that starts now is from before. Never rejects. */
  keep(): Promise<void>;
}

interface DesiredDeps {
  files: StateFiles;
  log: Log;
  clock: Clock;
  bootId: string;
}

/** Loads what was stored. A damaged file counts as nothing held: then no workload is wanted and none is stopped either. */
export async function openDesired(stateDir: string, deps: DesiredDeps): Promise<Desired> {
  const { files, log, clock, bootId } = deps;
  const file = join(stateDir, 'desired.json');
  let held = await files.read(file, HeldState).catch((error: unknown) => {
    log.error({ err: error }, 'the stored desired state is damaged; waiting for a new one');
    return undefined;
  });
  let told = held === undefined ? undefined : sinceBoot(held.told, bootId);
  /** What should be on disk. */
  let newest = held;
  let isStored = true;
  let stored = Promise.resolve();
  /** One after another, each with the newest by then. */
  const store = (): Promise<void> =>
    (stored = stored.then(async () => {
      try {
        await files.write(file, newest);
        isStored = true;
      } catch (error) {
        // Said once, not at every further try.
        if (isStored) log.error({ err: error }, 'the desired state could not be stored yet; it counts all the same');
        isStored = false;
      }
    }));
  const desired: Desired = {
    held: () => held,
    serverNowMs: () => {
      if (told === undefined) return clock.now();
      return told.server_ms + Math.round(clock.monotonicMs() - told.monotonic_ms);
    },
    take: async ({ epoch, revision, workloads, now_ms }) => {
      told = { server_ms: now_ms, monotonic_ms: clock.monotonicMs(), boot_id: bootId };
      const next = { epoch, revision, workloads, told };
      if (held !== undefined && !isNewer(next, held)) {
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

/** The counter begins at 0 with each boot: at least that much has passed since an earlier one. */
function sinceBoot(told: HeldState['told'], bootId: string): HeldState['told'] {
  return told.boot_id === bootId ? told : { ...told, monotonic_ms: 0 };
}

/** True where `a` was decided after `b`: a later epoch, or a later revision of the same one. */
function isNewer(a: Revision, b: Revision): boolean {
  return a.epoch > b.epoch || (a.epoch === b.epoch && a.revision > b.revision);
}
