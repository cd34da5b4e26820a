// What this room adds to the house: routes and metrics of held credits.
import { dollarsFromUcents } from '../../../shared/money.ts';
import type { Db } from '../../base/db/db.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import type { Billed } from '../ledger/wallets.ts';
import type { Credits } from './credits.ts';
import { creditOperatorRoutes } from './operator-routes.ts';
import { outageRoutes } from './outage-routes.ts';
import { waitingCredits } from './overview.ts';
import { countFlags, countHeld } from './store.ts';
import { CREDIT_PROOFS } from './verify.ts';

/** A held credit stays charged; its release is a credit like one that was granted at once. */
const BILLED: Billed = {
  'credit.held': { section: 'rental', by: 'subject' },
  'credit.released': { section: 'outage_credit', by: 'subject' },
};

export function creditsBrings({ db, cursors, credits }: { db: Db; cursors: Cursors; credits: Credits }) {
  return {
    operatorRoutes: [...creditOperatorRoutes({ db, cursors, credits }), ...outageRoutes({ db, cursors })],
    measures: measures(db),
    pages: CREDIT_PROOFS,
    billed: BILLED,
    waits: [waitingCredits],
  };
}

function measures(db: Db): Measure[] {
  return [
    {
      name: 'svc_credits_held',
      help: 'Credits and payments above a bound that wait for the operator',
      kind: 'gauge',
      labels: ['kind'],
      read: async () => (await countHeld(db.read)).map(({ kind, count }) => ({ labels: { kind }, value: count })),
    },
    {
      name: 'svc_credits_held_dollars',
      help: 'The sum of these credits and payments',
      kind: 'gauge',
      labels: ['kind'],
      read: async () =>
        (await countHeld(db.read)).map(({ kind, total_ucents: ucents }) => ({
          labels: { kind },
          value: dollarsFromUcents(ucents),
        })),
    },
    {
      name: 'svc_tenants_flagged',
      help: 'Organisations that fail on machines that serve others well: credits for their outages wait',
      kind: 'gauge',
      read: async () => one(await countFlags(db.read)),
    },
  ];
}
