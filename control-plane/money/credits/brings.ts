// What this room adds to the house: routes and metrics of held credits.
import { dollarsFromUcents } from '../../../shared/money.ts';
import type { Db } from '../../base/db/db.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import type { Credits } from './credits.ts';
import { creditOperatorRoutes } from './operator-routes.ts';
import { countHeld, flags } from './store.ts';
import { creditFaults } from './verify.ts';

export function creditsBrings({ db, credits }: { db: Db; credits: Credits }) {
  return { operatorRoutes: creditOperatorRoutes(credits), measures: measures(db), invariants: [creditFaults] };
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
      read: async () => one((await flags(db.read)).length),
    },
  ];
}
