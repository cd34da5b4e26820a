// The screens of operators: each list of the operator's routes is one screen, described as data.
import type { Screen } from '../core/screen.ts';
import type { Listing } from './listing.tsx';

const LISTINGS: readonly (Listing & { name: string })[] = [
  {
    name: 'loops',
    title: 'Loops',
    path: '/admin/v1/loops',
    cli: 'svc-control-plane admin loops',
    id: 'name',
    columns: ['name', 'running', 'last_started_at', 'last_success_at', 'last_error'],
    what: 'Periodic work of this control plane. Work that is late or fails needs a look.',
  },
  {
    name: 'orgs',
    title: 'Organisations',
    path: '/admin/v1/orgs?limit=100',
    cli: 'svc-control-plane admin org list',
    id: 'id',
    columns: ['name', 'id', 'suspended_at', 'suspended_reason', 'created_at'],
    what: 'Customers and suppliers.',
    verbs: [
      {
        verb: 'suspend',
        says: 'It can read and delete, and starts nothing that costs money. What runs goes on.',
        takes: 'reason',
      },
      { verb: 'resume', says: 'It may do everything again.' },
    ],
  },
  {
    name: 'fleet',
    title: 'Fleet',
    path: '/admin/v1/machines?limit=100',
    cli: 'svc-control-plane admin machine list',
    id: 'machine_id',
    columns: ['machine_id', 'status', 'gpu_name', 'gpus', 'online', 'off_market_because'],
    what: 'Machines of all suppliers.',
    verbs: [
      { verb: 'approve', says: 'Its GPUs come on offer if nothing else stands in the way.' },
      { verb: 'suspend', says: 'Nothing new starts on it. What runs goes on.' },
    ],
  },
  {
    name: 'rentals',
    title: 'Rentals',
    path: '/admin/v1/instances?limit=100',
    cli: 'svc-control-plane admin instance list',
    id: 'instance_id',
    columns: ['instance_id', 'status', 'gpus', 'org_id', 'machine_id', 'created_at'],
    what: 'Instances of all organisations.',
  },
  {
    name: 'credits',
    title: 'Credits',
    path: '/admin/v1/credits?limit=100',
    cli: 'svc-control-plane admin credit list',
    id: 'credit_id',
    columns: ['credit_id', 'state', 'dollars', 'org_id', 'cause', 'because'],
    what: 'Credits for outages that wait for a decision.',
    verbs: [
      { verb: 'release', says: 'The customer gets the credit now.', takes: 'note' },
      { verb: 'refuse', says: 'The customer gets no credit.', takes: 'note' },
    ],
  },
  {
    name: 'deposit-queue',
    title: 'Deposit queue',
    path: '/admin/v1/deposits?limit=100',
    cli: 'svc-control-plane admin deposit list',
    id: 'deposit_id',
    columns: ['deposit_id', 'status', 'amount', 'chain', 'asset', 'org_id', 'created_at'],
    what: 'Stablecoin deposits. Those that are late, held or wrong wait for a decision on the command line.',
  },
  {
    name: 'payouts',
    title: 'Payouts',
    path: '/admin/v1/payouts?limit=100',
    cli: 'svc-control-plane admin payout list',
    id: 'payout_id',
    columns: ['payout_id', 'status', 'amount_cents', 'supplier_id', 'chain', 'reason'],
    what: 'What suppliers are paid and were paid.',
  },
  {
    name: 'people',
    title: 'People',
    path: '/admin/v1/users?limit=100',
    cli: 'svc-control-plane admin user list',
    id: 'id',
    columns: ['name', 'email', 'is_operator', 'has_second_factor', 'orgs'],
    what: 'Everybody who can sign in.',
  },
  {
    name: 'audit',
    title: 'Audit',
    path: '/admin/v1/audit?limit=100',
    cli: 'svc-control-plane admin audit list',
    id: 'request_id',
    columns: ['at', 'actor', 'operation', 'subject', 'outcome'],
    what: 'What operators did, newest first.',
  },
];

export const OPERATOR_SCREENS: readonly Screen[] = LISTINGS.map(({ name, ...listing }): Screen => ({
  path: `/console/operate/${name}`,
  title: listing.title,
  group: 'Operate',
  scope: 'operator',
  load: async () => (await import('./listing.tsx')).listingScreen(listing),
}));
