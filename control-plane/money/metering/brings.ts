// What this room brings to the house.
import type { Clock } from '../../../shared/clock.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import type { Db } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { type Metering, TICK_MS } from './metering.ts';
import { billingRoutes } from './routes.ts';
import { meteringProof } from './verify.ts';

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  ledger: Ledger;
  metering: Metering;
  /** Takes our own outages out of what is charged. */
  beat(): Promise<boolean>;
  /** Ends a rental that can no longer be paid for. */
  stopUnpaid(instanceId: string): Promise<void>;
}

export function meteringBrings({ db, clock, cursors, ledger, metering, beat, stopUnpaid }: Deps) {
  const tick: LoopOptions = {
    name: 'metering',
    periodMs: TICK_MS,
    run: async (signal) => {
      // First: no rental is stopped for want of money for a time that is not charged.
      await beat();
      for (const id of await metering.tick(signal)) await stopUnpaid(id);
    },
  };
  return { routes: billingRoutes({ db, clock, cursors, ledger }), loops: [tick], charges: meteringProof };
}
