// What this room brings to the house.
import type { LoopOptions } from '../../../shared/loop.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Db } from '../../base/db/db.ts';
import { type Forgets, inPieces } from '../../base/db/pieces.ts';
import type { Events } from '../../base/events/events.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import type { OwnQuiet } from '../instances/quiet.ts';
import type { Decoys } from './decoys.ts';
import { type OwnOutages, BEAT_PERIOD_MS } from './own-outages.ts';
import { forgetHours } from './probe-hours.ts';
import { machineProbesRoute } from './probe-route.ts';
import { countFailing, countMachines } from './store.ts';
import { failsTogether } from './verdict.ts';
import { gapProof } from './verify.ts';
import type { Watch } from './watch.ts';

const WATCH_PERIOD_MS = 1_000;
const DECOYS_PERIOD_MS = 30_000;
/** Counts of probes are kept this long. */
const HOURS_KEPT_MS = 8 * 86_400_000;

interface Deps {
  db: Db;
  clock: Clock;
  events: Events;
  watch: Watch;
  decoys: Decoys;
  ownOutages: OwnOutages;
  quiet: OwnQuiet;
}

/** Probes and decoys end before streams are drained. Otherwise they would mistake a closed port for a host that is out of reach. */
export function outagesBrings({ db, clock, events, watch, decoys, ownOutages, quiet }: Deps) {
  const beat = async (): Promise<void> => {
    await ownOutages.beat();
    quiet.noteAlive();
  };
  const endsBeforeDrain = true;
  const loops: (LoopOptions & { endsBeforeDrain?: boolean })[] = [
    { name: 'own-outages', periodMs: BEAT_PERIOD_MS, run: beat },
    { name: 'watch', periodMs: WATCH_PERIOD_MS, run: (signal) => watch.run(signal), endsBeforeDrain },
    { name: 'decoys', periodMs: DECOYS_PERIOD_MS, run: (signal) => decoys.run(signal), endsBeforeDrain },
  ];
  const forgets: Forgets = {
    what: 'probe_hours',
    run: (signal) => inPieces(clock.now() - HOURS_KEPT_MS, (piece) => forgetHours(db, piece), signal),
  };
  // `close` writes what only memory has, so that a planned stop loses nothing.
  return {
    routes: [machineProbesRoute({ db, clock })],
    loops,
    forgets: [forgets],
    close: () => watch.store(),
    measures: measures(db, ownOutages),
    subjects: gapProof({ events, clock }),
  };
}

function measures(db: Db, ownOutages: OwnOutages): Measure[] {
  return [
    {
      name: 'svc_machines_failing_probes',
      help: 'Machines with an instance whose probes fail',
      kind: 'gauge',
      read: async () => one(await countFailing(db.read)),
    },
    {
      name: 'svc_verdicts_held',
      help: '1 while verdicts are held because many machines fail together',
      kind: 'gauge',
      read: async () => {
        const { machines, failing } = await countMachines(db.read);
        return one(failsTogether(machines, failing) ? 1 : 0);
      },
    },
    {
      name: 'svc_clock_steps_total',
      help: 'How often the wall clock of this host was set while the process was running',
      kind: 'counter',
      read: () => one(ownOutages.clockSteps()),
    },
  ];
}
