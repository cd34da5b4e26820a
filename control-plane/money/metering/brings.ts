// What this room adds to the house: the metering loop.
import type { Clock } from '../../../shared/clock.ts';
import { throwAll } from '../../../shared/errors.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import type { Db } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import type { Billed } from '../ledger/wallets.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { DISPUTED, type Metering, TICK_MS } from './metering.ts';
import { billingRoutes } from './routes.ts';
import { earningsByDay, meteringProof } from './verify.ts';

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  ledger: Ledger;
  metering: Metering;
  /** Records that the control plane is alive. If there was an outage of our own, credits it. */
  beat(): Promise<boolean>;
  /** Ends a rental if its customer can no longer pay for it. */
  stopUnpaid(instanceId: string): Promise<void>;
}

/** Refunds with evidence have lines of their own, which show the evidence. All other transfers of a rental share one line. */
const BILLED: Billed = {
  'rental.charge': { section: 'rental', by: 'subject' },
  'rental.refund_charge': {
    section: (evidence) => {
      if (evidence === null) return 'rental';
      return evidence.startsWith(DISPUTED) ? 'refund' : 'outage_credit';
    },
    by: 'subject',
  },
};

export function meteringBrings({ db, clock, cursors, ledger, metering, beat, stopUnpaid }: Deps) {
  const tick: LoopOptions = {
    name: 'metering',
    periodMs: TICK_MS,
    run: async (signal) => {
      // Outages are credited first. Otherwise a rental could be stopped because of time that is not charged.
      await beat();
      const failures: unknown[] = [];
      for (const id of await metering.tick(signal))
        await stopUnpaid(id).catch((error: unknown) => void failures.push(error));
      throwAll(failures);
    },
  };
  return {
    routes: billingRoutes({ db, clock, cursors, ledger }),
    loops: [tick],
    charges: meteringProof,
    subjects: earningsByDay,
    billed: BILLED,
  };
}
