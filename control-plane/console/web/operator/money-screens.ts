// The screens of operators that are about money.
import type { Screen } from '../core/screen.ts';
import type { Listing } from './listing.tsx';

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
];
