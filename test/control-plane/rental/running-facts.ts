// The facts of an instance that runs, of which nothing happens by itself, for the tests of its plan.
import type { Facts } from '../../../control-plane/rental/instances/plan.ts';
import { NOTHING_OBSERVED } from '../../kit/world.ts';

/** A report of its host; a test adds the phase. */
export const NOTHING = { ...NOTHING_OBSERVED, workload_id: 'wl' };

export const RUNNING: Facts = {
  status: 'running',
  enteredMs: 0,
  placedMs: 0,
  startingMs: null,
  reachedMs: null,
  exitedMs: null,
  endsByItself: false,
  ownImage: true,
  triedMachines: 1,
  autoTerminateMs: null,
  observed: null,
  quiet: { fromMs: 0, untilMs: 0 },
};
