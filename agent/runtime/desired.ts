// The desired state this host holds: stored whole before anything acts on it, and only ever replaced by a newer one.
import { join } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../../shared/clock.ts';
import type { Log } from '../../shared/log.ts';
import { Position, type DesiredMessage } from '../../shared/protocol/link.ts';
import { DesiredWorkload } from '../../shared/protocol/workload.ts';
import type { StateFiles } from '../host/state.ts';

const HeldState = z.strictObject({
  ...Position.shape,
  workloads: z.array(DesiredWorkload),
  /** What to add to this host's clock to get the control plane's, as it was when this state came: for the time until it is told again. */
  clock_offset_ms: z.int(),
});
export type HeldState = z.infer<typeof HeldState>;

export interface Desired {
  held(): HeldState | undefined;
  /** The control plane's time in epoch ms: what it said last, and what has passed since. Setting this host's clock does not change it. */
  serverNowMs(): number;
  /**
   * Takes a newer state, stored before it counts; resolves with false where it is older than, or the same as, what is held. Where the
   * disk does not take it, it counts for this process all the same: what is to go may be what has filled the disk.
   */
  take(message: DesiredMessage): Promise<boolean>;
}

/** Loads what was stored. A damaged file counts as nothing held: then no workload is wanted and none is stopped either. */
export async function openDesired(
  stateDir: string,
  deps: { files: StateFiles; log: Log; clock: Clock },
): Promise<Desired> {
  const { files, log, clock } = deps;
  const file = join(stateDir, 'desired.json');
  let held = await files.read(file, HeldState).catch((error: unknown) => {
    log.error({ err: error }, 'the stored desired state is damaged; waiting for a new one');
    return undefined;
  });
  let told: { serverMs: number; monotonicMs: number } | undefined;
  let isStored = true;
  const store = async (state: HeldState): Promise<void> => {
    try {
      await files.write(file, state);
      isStored = true;
    } catch (error) {
      isStored = false;
      log.error({ err: error }, 'the desired state could not be stored; it counts until this process ends');
    }
  };
  return {
    held: () => held,
    serverNowMs: () => {
      if (told !== undefined) return told.serverMs + Math.round(clock.monotonicMs() - told.monotonicMs);
      return clock.now() + (held?.clock_offset_ms ?? 0);
    },
    take: async ({ epoch, revision, workloads, now_ms }) => {
      told = { serverMs: now_ms, monotonicMs: clock.monotonicMs() };
      const next = { epoch, revision, workloads, clock_offset_ms: now_ms - clock.now() };
      const newest = held === undefined || isNewer(next, held) ? next : held;
      const isNews = newest === next;
      if (isNews || !isStored) await store(newest);
      held = newest;
      return isNews;
    },
  };
}

/** True where `a` was decided after `b`: a later epoch, or a later revision of the same one. */
function isNewer(a: Position, b: Position): boolean {
  return a.epoch > b.epoch || (a.epoch === b.epoch && a.revision > b.revision);
}
