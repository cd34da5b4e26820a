// The screens of operators that are about money, models and webhooks.
import { serviceNow } from '../core/clock.ts';
import type { Screen } from '../core/screen.ts';
import type { Listing } from './listing.tsx';
import { REASON } from './verbs.ts';

const SUPPLIERS: Listing = {
  title: 'Suppliers',
  path: '/admin/v1/suppliers?limit=100',
  cli: 'svc-control-plane admin supplier list',
  id: 'supplier_id',
  columns: ['supplier_id', 'status', 'payable_cents', 'unpaid_cents', 'accrued_cents', 'org_id', 'created_at'],
  what: 'Organisations that supply machines, and what they are owed.',
  verbs: [
    {
      verb: 'suspend',
      says: 'All its machines leave the market, and it is paid nothing. What runs goes on, and earnings stay owed.',
      fits: ({ status }) => status !== 'suspended',
    },
    {
      verb: 'resume',
      says: 'Its machines come on offer again if nothing else stands in the way, and payouts may leave.',
      fits: ({ status }) => status === 'suspended',
    },
  ],
};

const listed = { group: 'Operate', scope: 'operator' } as const;

/** Time for which deliveries of webhooks are kept. */
const KEPT_MS = 30 * 24 * 3_600_000;

const WEBHOOKS: Listing = {
  title: 'Failing webhooks',
  path: '/admin/v1/webhook-endpoints?limit=100',
  cli: 'svc-control-plane admin webhook list',
  id: 'endpoint_id',
  columns: ['url', 'dead', 'status', 'overdue_since', 'failing_since', 'org_id'],
  what: 'Endpoints of customers with deliveries that were given up, or are due for more than a minute.',
  verbs: [
    {
      verb: 'replay',
      says: 'All its deliveries that were given up since then get a new schedule. They are sent again with the ids that they had.',
      takes: [
        {
          field: 'since',
          option: 'since',
          label: 'Since',
          initial: () => new Date(serviceNow() - KEPT_MS).toISOString(),
        },
        REASON,
      ],
      fits: ({ dead }) => Number(dead) > 0,
    },
  ],
};

export const MONEY_SCREENS: readonly Screen[] = [
  {
    path: '/console/operate/orgs/:id',
    title: 'Organisation',
    scope: 'operator',
    load: async () => (await import('./org.tsx')).OrgPage,
  },
  {
    ...listed,
    path: '/console/operate/deposit-queue',
    title: 'Deposit queue',
    load: async () => (await import('./deposit-queue.tsx')).DepositQueue,
  },
  {
    path: '/console/operate/deposit-queue/:id',
    title: 'Deposit',
    scope: 'operator',
    load: async () => (await import('./queued-deposit.tsx')).QueuedDeposit,
  },
  {
    ...listed,
    path: '/console/operate/ledger',
    title: 'Ledger',
    load: async () => (await import('./ledger.tsx')).Ledger,
  },
  {
    ...listed,
    path: '/console/operate/payouts',
    title: 'Payouts',
    load: async () => (await import('./payouts.tsx')).Payouts,
  },
  {
    ...listed,
    path: '/console/operate/suppliers',
    title: 'Suppliers',
    load: async () => (await import('./listing.tsx')).listingScreen(SUPPLIERS),
  },
  {
    ...listed,
    path: '/console/operate/models',
    title: 'Models',
    load: async () => (await import('./tiers.tsx')).Tiers,
  },
  {
    ...listed,
    path: '/console/operate/webhooks',
    title: 'Failing webhooks',
    load: async () => (await import('./listing.tsx')).listingScreen(WEBHOOKS),
  },
  {
    ...listed,
    path: '/console/operate/reservations',
    title: 'Reservations',
    load: async () => (await import('./reservations.tsx')).Reservations,
  },
];
