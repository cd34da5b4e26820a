// Machines that were online when the last process ended, and whose link does not come back; the others were heard of.
import type { Clock } from '../../../shared/clock.ts';
import { LINK_RECONNECT_MS_MAX } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import type { Supply } from '../supply/supply.ts';
import type { Link } from './link.ts';

/**
 * After a start every agent gets some tries to come back. Until then its machine counts as before, so that a restart of ours takes no
 * offering away; a launch on a host that is really gone is tried elsewhere. (After a longer presence nothing counts as online.)
 */
export const RETURN_MS = 4 * LINK_RECONNECT_MS_MAX;

/** How old `last_heartbeat_at` of a machine with a link may be; each note writes the rows of the whole fleet. */
const HEARTBEAT_MS = 60_000;

export interface Presence {
  /** Level-triggered: takes machines without a link offline, once they had their time, and notes that the others are there. */
  run(): Promise<void>;
}

export function openPresence(deps: {
  clock: Clock;
  log: Log;
  supply: Pick<Supply, 'onlineMachineIds' | 'setOnline' | 'noteHeartbeats'>;
  link: Pick<Link, 'isUp'>;
}): Presence {
  const { clock, log, supply, link } = deps;
  const startedMs = clock.monotonicMs();
  let notedMs = startedMs;
  return {
    run: async () => {
      if (clock.monotonicMs() - startedMs < RETURN_MS) return;
      for (const machineId of await supply.onlineMachineIds()) {
        if (link.isUp(machineId)) continue;
        await supply.setOnline(machineId, false);
        log.warn({ machine_id: machineId }, 'a machine counted as online and has no link: it is offline');
      }
      if (clock.monotonicMs() - notedMs < HEARTBEAT_MS) return;
      notedMs = clock.monotonicMs();
      await supply.noteHeartbeats();
    },
  };
}
