// The desired state this host holds: stored whole before anything acts on it, and only ever replaced by a newer one.
import { join } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../../shared/clock.ts';
import type { Log } from '../../shared/log.ts';
import { Position, type DesiredMessage } from '../../shared/protocol/link.ts';
import { DesiredWorkload } from '../../shared/protocol/workload.ts';
import { readJson, writeJson } from '../host/state.ts';

const HeldState = z.strictObject({
  ...Position.shape,
  workloads: z.array(DesiredWorkload),
  /** What to add to this host's clock to get the control plane's, as it was when this state came. */
  clock_offset_ms: z.int(),
});
export type HeldState = z.infer<typeof HeldState>;

export interface Desired {
  held(): HeldState | undefined;
  /** Stores a newer state; resolves with false where it is older than, or the same as, what is held. */
  take(message: DesiredMessage): Promise<boolean>;
}

/** Loads what was stored. A damaged file counts as nothing held: then no workload is wanted and none is stopped either. */
export async function openDesired(stateDir: string, deps: { log: Log; clock: Clock }): Promise<Desired> {
  const { log, clock } = deps;
  const file = join(stateDir, 'desired.json');
  let held = await readJson(file, HeldState).catch((error: unknown) => {
    log.error({ err: error }, 'the stored desired state is damaged; waiting for a new one');
    return undefined;
  });
  return {
    held: () => held,
    take: async ({ epoch, revision, workloads, now_ms }) => {
      if (held !== undefined && !isNewer({ epoch, revision }, held)) return false;
      const next = { epoch, revision, workloads, clock_offset_ms: now_ms - clock.now() };
      await writeJson(file, next);
      held = next;
      return true;
    },
  };
}

/** True where `a` was decided after `b`: a later epoch, or a later revision of the same one. */
function isNewer(a: Position, b: Position): boolean {
  return a.epoch > b.epoch || (a.epoch === b.epoch && a.revision > b.revision);
}
