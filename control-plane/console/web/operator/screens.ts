// The screens of operators: each list of the operator's routes is one screen, described as data.
import type { Screen } from '../core/screen.ts';
import type { Listing } from './listing.tsx';
import { MONEY_SCREENS } from './money-screens.ts';
import { CREDIT_VERBS, MACHINE_VERBS } from './verbs.ts';

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
    name: 'fleet',
    title: 'Fleet',
    path: '/admin/v1/machines?limit=100',
    cli: 'svc-control-plane admin machine list',
    id: 'machine_id',
    columns: ['machine_id', 'status', 'name', 'gpu_name', 'gpus', 'online', 'off_market_because'],
    what: 'Machines of all suppliers.',
    searched: 'name, id or supplier',
    verbs: MACHINE_VERBS,
    page: '/console/operate/fleet',
  },
  {
    name: 'outages',
    title: 'Outages',
    path: '/admin/v1/outages?limit=100',
    cli: 'svc-control-plane admin outage list',
    id: 'outage_id',
    columns: ['outage_id', 'cause', 'machine_id', 'from', 'until', 'rentals', 'credited', 'held'],
    what: 'What stopped rentals: hosts that nobody could reach, broken GPUs, and outages of our own.',
    filters: [
      ['All', '', ''],
      ['Now', 'open=true', '--open'],
    ],
    page: '/console/operate/outages',
  },
  {
    name: 'rentals',
    title: 'Rentals',
    path: '/admin/v1/instances?limit=100',
    cli: 'svc-control-plane admin instance list',
    id: 'instance_id',
    columns: ['instance_id', 'status', 'gpus', 'org_id', 'machine_id', 'created_at'],
    what: 'Instances of all organisations.',
    page: '/console/operate/rentals',
  },
  {
    name: 'credits',
    title: 'Credits',
    path: '/admin/v1/credits?limit=100',
    cli: 'svc-control-plane admin credit list',
    id: 'credit_id',
    columns: ['credit_id', 'state', 'dollars', 'org_id', 'cause', 'because'],
    what: 'Credits for outages that wait for a decision.',
    verbs: CREDIT_VERBS,
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

const OVERVIEW: Screen = {
  path: '/console/operate/overview',
  title: 'Overview',
  group: 'Operate',
  scope: 'operator',
  load: async () => (await import('./overview.tsx')).OverviewScreen,
};

const PEOPLE: readonly Screen[] = [
  {
    path: '/console/operate/orgs',
    title: 'Organisations',
    group: 'Operate',
    scope: 'operator',
    load: async () => (await import('./people.tsx')).Orgs,
  },
  {
    path: '/console/operate/people',
    title: 'People',
    group: 'Operate',
    scope: 'operator',
    load: async () => (await import('./people.tsx')).People,
  },
];

/** Pages of single rows. They are reached from the lists and are not in the navigation. */
const PAGES: readonly Screen[] = [
  {
    path: '/console/operate/fleet/:id',
    title: 'Machine',
    scope: 'operator',
    load: async () => (await import('./fleet-machine.tsx')).FleetMachine,
  },
  {
    path: '/console/operate/rentals/:id',
    title: 'Placement',
    scope: 'operator',
    load: async () => (await import('./placement.tsx')).PlacementPage,
  },
  {
    path: '/console/operate/outages/:id',
    title: 'Outage',
    scope: 'operator',
    load: async () => (await import('./outage.tsx')).OutagePage,
  },
];

const LISTED = LISTINGS.map(({ name, ...listing }): Screen => ({
  path: `/console/operate/${name}`,
  title: listing.title,
  group: 'Operate',
  scope: 'operator',
  load: async () => (await import('./listing.tsx')).listingScreen(listing),
}));

export const OPERATOR_SCREENS: readonly Screen[] = [OVERVIEW, ...PEOPLE, ...LISTED, ...PAGES, ...MONEY_SCREENS];
