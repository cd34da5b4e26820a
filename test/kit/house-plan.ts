// The plan of the house as data: which room stands above which, which tables it owns, and where an outside package may enter.

export interface Room {
  /** Folder below the daemon, e.g. `base/db`. */
  path: string;
  /** Tables that only this room may name in SQL. */
  tables: readonly string[];
}

export interface Daemon {
  folder: string;
  /** Files beside the rooms that put the daemon together; no room may import them. */
  composition: readonly string[];
  /** In import order: a room may import only rooms that stand before it. */
  rooms: readonly Room[];
}

/** A new table or room is one line here. */
export const DAEMONS: readonly Daemon[] = [
  {
    folder: 'control-plane',
    composition: [
      'main.ts',
      'house.ts',
      'rooms.ts',
      'looks.ts',
      'schema.ts',
      'foundation.ts',
      'gauges.ts',
      'admin-deps.ts',
      'books.ts',
      'admin-decisions.ts',
      'admin-instances.ts',
      'backup.ts',
      'config.ts',
      'listeners.ts',
      'loops.ts',
      'public-routes.ts',
      'retention.ts',
      'serve-flags.ts',
    ],
    rooms: [
      { path: 'base/db', tables: ['schema_migrations', 'leases', 'commit_probes'] },
      { path: 'base/http', tables: ['idempotency_keys', 'idempotency_counts', 'secret_checks'] },
      { path: 'base/blobs', tables: [] },
      { path: 'base/outbound', tables: [] },
      { path: 'base/supervision', tables: [] },
      { path: 'base/accounts', tables: ['orgs', 'api_keys', 'ssh_keys'] },
      { path: 'base/events', tables: ['events'] },
      { path: 'base/operations', tables: ['operations'] },
      { path: 'money/ledger', tables: ['ledger_accounts', 'transfers', 'holds', 'ledger_proof', 'proven_accounts'] },
      { path: 'money/credits', tables: ['free_times', 'held_credits', 'credit_flags'] },
      { path: 'money/metering', tables: ['meter_segments'] },
      { path: 'money/payouts', tables: ['disputes'] },
      { path: 'money/deposits', tables: ['deposits', 'deposit_transfers', 'deposit_addresses'] },
      {
        path: 'fleet/supply',
        tables: ['suppliers', 'machines', 'machine_gpus', 'gpu_claims', 'enrollment_tokens', 'offerings', 'slot_wants'],
      },
      { path: 'fleet/link', tables: ['agent_links', 'link_ratchets'] },
      { path: 'fleet/placement', tables: [] },
      { path: 'fleet/workloads', tables: ['workloads', 'workload_machines'] },
      { path: 'rental/launch', tables: ['registry_credentials'] },
      { path: 'rental/doors', tables: ['doors', 'door_ports'] },
      { path: 'rental/reservations', tables: ['reservations'] },
      { path: 'rental/instances', tables: ['instances'] },
      { path: 'rental/edge', tables: ['probes', 'heartbeats', 'decoys'] },
      { path: 'rental/webhooks', tables: ['webhook_endpoints', 'webhook_deliveries', 'webhook_attempts'] },
      { path: 'models/catalog', tables: [] },
      { path: 'models/replicas', tables: ['model_replicas'] },
      { path: 'models/gateway', tables: ['request_receipts', 'forgotten_receipts'] },
      { path: 'models/videos', tables: ['video_jobs'] },
      { path: 'models/files', tables: ['files'] },
      { path: 'models/finetuning', tables: ['finetuning_jobs', 'finetuning_events'] },
      { path: 'admin', tables: ['audit_entries'] },
      { path: 'docs', tables: [] },
    ],
  },
  {
    folder: 'agent',
    composition: ['main.ts', 'house.ts', 'host-commands.ts', 'stock.ts', 'config.ts'],
    rooms: ['host', 'gpus', 'runtime', 'access', 'link'].map((path) => ({ path, tables: [] })),
  },
];

export interface Door {
  packages: readonly string[];
  /** Folders (ending in `/`), files, or `*` followed by the end of a path. */
  doors: readonly string[];
  why: string;
}

export const DOORS: readonly Door[] = [
  {
    packages: ['better-sqlite3', 'pg'],
    doors: ['control-plane/base/db/'],
    why: 'everyone else speaks to SQL through Db { read, tx }',
  },
  {
    packages: ['fastify'],
    doors: ['control-plane/base/http/', '*/routes.ts'],
    why: 'logic that knows its web framework cannot be called by another room',
  },
  {
    packages: ['@fastify/busboy'],
    doors: ['control-plane/base/http/'],
    why: 'the bounds of a form are set in one place',
  },
  {
    packages: ['undici', 'ipaddr.js'],
    doors: ['control-plane/base/outbound/'],
    why: 'whoever calls an address that a stranger has named goes through the guard of that room',
  },
  {
    packages: ['marked'],
    doors: ['control-plane/docs/'],
    why: 'the pages of the manual are rendered in one place, with raw HTML off',
  },
  {
    packages: ['luxon'],
    doors: ['shared/iso-time.ts'],
    why: 'time is handed in as milliseconds; only what callers write is parsed',
  },
  {
    packages: ['ws'],
    doors: ['control-plane/fleet/link/', 'control-plane/rental/edge/', 'agent/link/', 'agent/access/'],
    why: 'the guards of a socket (limits, backpressure, no deflate) live with the rooms that own sockets',
  },
  {
    packages: ['dockerode'],
    doors: ['agent/runtime/docker.ts', 'agent/runtime/docker-networks.ts'],
    why: 'the plan stays pure and the engine replaceable',
  },
  {
    packages: ['ssh2'],
    doors: ['agent/access/', 'control-plane/rental/edge/'],
    why: 'its seven guards are set up in one place for each end',
  },
  {
    packages: ['@lydell/node-pty'],
    doors: ['agent/access/guest/'],
    why: 'a terminal exists only inside the container',
  },
  {
    packages: ['node:child_process'],
    doors: ['agent/host/run.ts', 'agent/access/guest/', 'agent/access/spawn.ts', 'control-plane/base/supervision/'],
    why: 'programs are started with argument arrays and limits, never through a shell string',
  },
];
