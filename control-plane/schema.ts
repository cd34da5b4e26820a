// Every room's migrations in the order of the house; tests open their databases with the same list.
import type { RoomMigrations } from './base/db/migrate.ts';

const ROOMS = [
  'base/db',
  'base/http',
  'base/accounts',
  'base/events',
  'base/operations',
  'money/ledger',
  'money/credits',
  'money/metering',
  'money/payouts',
  'fleet/supply',
  'fleet/link',
  'fleet/workloads',
  'rental/launch',
  'rental/endpoints',
  'rental/reservations',
  'rental/instances',
  'rental/outages',
  'rental/webhooks',
  'models/gateway',
  'models/videos',
  'models/files',
  'admin',
];

export const SCHEMA: RoomMigrations[] = ROOMS.map((room) => ({
  room,
  directory: new URL(`./${room}/migrations/`, import.meta.url),
}));
