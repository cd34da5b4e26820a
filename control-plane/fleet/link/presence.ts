// Marks machines offline whose link does not return after a restart of the control plane, and records heartbeats of connected machines.
import type { Clock } from '../../../shared/clock.ts';
import { LINK_RECONNECT_MS_MAX } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import type { Supply } from '../supply/supply.ts';
import type { Link } from './link.ts';

/**
 * After a start, every agent has this time to reconnect. Until then its machine keeps its state, so that a restart of the control plane
 * takes no offering off the market. If the host is really gone, a launch on it fails over to another one. After a longer outage of the
 * control plane, all machines are marked offline at the start.
 */
export const RETURN_MS = 4 * LINK_RECONNECT_MS_MAX;

/** The largest age of `last_heartbeat_at` of a connected machine. Each update writes the rows of the whole fleet. */
const HEARTBEAT_MS = 60_000;

export interface Presence {
  /** Level-triggered: marks machines without a link offline after RETURN_MS, and records heartbeats of the others. */
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
        log.warn({ machine_id: machineId }, 'a machine was marked online but has no link; it is now offline');
      }
      if (clock.monotonicMs() - notedMs < HEARTBEAT_MS) return;
      notedMs = clock.monotonicMs();
      await supply.noteHeartbeats();
    },
  };
}
