// The operator's lists that grow, each with five rows to be walked.
import { type Sql, sql, type Tx } from '../../control-plane/base/db/db.ts';
import type { Ledger } from '../../control-plane/money/ledger/ledger.ts';

export interface List {
  /** The path and the query of its filters. */
  path: string;
  /** The field of a row that the test knows. */
  key: string;
  /** The list picks a few rows of a large table by their own indexes, and sorts them. */
  isPicked?: boolean;
  /** Adds five rows named r1 to r5, where a later one comes earlier in the list, and some were made in one millisecond. */
  fill(tx: Tx, ledger: Ledger): Promise<void>;
}

const ROWS = [1, 2, 3, 4, 5];
export const NEWEST_FIRST = ['r5', 'r4', 'r3', 'r2', 'r1'];
/** Two rows are of one millisecond. */
const msOf = (n: number): number => (n < 4 ? n : 4);

async function each(tx: Tx, insert: (id: string, ms: number, n: number) => Sql): Promise<void> {
  for (const n of ROWS) await tx.run(insert(`r${n}`, msOf(n), n));
}

const supplier = (id: string, ms: number): Sql =>
  sql`insert into suppliers (id, org_id, status, created_ms, updated_ms) values (${id}, ${`org-${id}`}, 'active', ${ms}, ${ms})`;

const payouts = (tx: Tx): Promise<void> =>
  each(
    tx,
    (id, ms) => sql`insert into payouts (id, supplier_id, state, amount_ucents, reference, created_ms, ended_ms)
      values (${id}, 's-1', 'failed', 1, ${id}, ${ms}, ${ms})`,
  );

const COMMITMENT = JSON.stringify([{ gpu_type: 'H100_SXM', gpu_count: 1, region: 'eu' }]);

const REQUEST = JSON.stringify({ gpu_type: 'H100_SXM', gpu_count: 1, tier: 'on_demand', image: 'x' });
const LAUNCH = JSON.stringify({
  image: 'x',
  own_image: true,
  registry_credential_id: null,
  entrypoint: null,
  cmd: null,
  sealed_env: null,
  ports: [],
  min_vram_gb: 0,
});

export const LISTS: List[] = [
  {
    path: '/admin/orgs',
    key: 'id',
    fill: (tx) => each(tx, (id, ms) => sql`insert into orgs (id, name, created_ms) values (${id}, 'x', ${ms})`),
  },
  ...['', '?org_id=o-1'].map((filter) => ({
    path: `/admin/keys${filter}`,
    key: 'id',
    fill: async (tx: Tx) => {
      await tx.run(sql`insert into orgs (id, name, created_ms) values ('o-1', 'x', 0)`);
      await each(
        tx,
        (id, ms) =>
          sql`insert into api_keys (id, org_id, name, prefix, key_hash, scopes, created_ms) values (${id}, 'o-1', 'x', 'x', ${id}, '[]', ${ms})`,
      );
    },
  })),
  {
    path: '/admin/users',
    key: 'id',
    fill: (tx) =>
      each(
        tx,
        (id, ms) =>
          sql`insert into users (id, email, name, is_operator, is_vouched, created_ms) values (${id}, ${id}, 'x', 0, 0, ${ms})`,
      ),
  },
  {
    path: '/admin/orgs/o-1/members',
    key: 'user_id',
    fill: async (tx) => {
      await tx.run(sql`insert into orgs (id, name, created_ms) values ('o-1', 'x', 0)`);
      await each(
        tx,
        (id, ms) =>
          sql`insert into users (id, email, name, is_operator, is_vouched, created_ms) values (${id}, ${id}, 'x', 0, 0, ${ms})`,
      );
      await each(
        tx,
        (id, ms) => sql`insert into members (org_id, user_id, role, created_ms) values ('o-1', ${id}, 'member', ${ms})`,
      );
    },
  },
  { path: '/admin/suppliers', key: 'supplier_id', fill: (tx) => each(tx, supplier) },
  {
    path: '/admin/machines',
    key: 'machine_id',
    fill: async (tx) => {
      await tx.run(supplier('s-1', 0));
      await each(
        tx,
        (id, ms) =>
          sql`insert into machines (id, supplier_id, status, verification_status, region, price_ucents_per_hour, tier, created_ms, updated_ms)
              values (${id}, 's-1', 'pending_verification', 'unverified', 'eu', 1, 'on_demand', ${ms}, ${ms})`,
      );
    },
  },
  ...['', '?supplier_id=s-1', '?state=failed'].map((filter) => ({
    path: `/admin/payouts${filter}`,
    key: 'reference',
    fill: payouts,
  })),
  {
    path: '/admin/disputes',
    key: 'dispute_id',
    fill: (tx) =>
      each(
        tx,
        (id, ms) =>
          sql`insert into disputes (id, instance_id, since_ms, reason, state, opened_ms) values (${id}, ${id}, 0, 'x', 'open', ${ms})`,
      ),
  },
  ...['', '?machine_id=m'].map((filter) => ({
    path: `/admin/outages${filter}`,
    key: 'outage_id',
    fill: (tx: Tx) =>
      each(
        tx,
        (id, ms) =>
          sql`insert into outages (id, cause, machine_id, evidence, opened_ms) values (${id}, 'outage', 'm', 'x', ${ms})`,
      ),
  })),
  {
    path: '/admin/credits',
    key: 'credit_id',
    // The oldest two wait, so they are the first ones of the list.
    fill: (tx) =>
      each(tx, (id, ms, n) => {
        const [name, state] = n > 3 ? [`r${n}`, 'held'] : [id, n === 1 ? 'released' : 'refused'];
        return sql`insert into held_credits (id, kind, why, cause, subject_id, org_id, supplier_id, amount_ucents, wallet_ucents, supplier_bps,
                     from_ms, until_ms, evidence, state, created_ms)
                   values (${name}, 'credit', 'flagged', 'outage', 'i', 'o', 's', 1, 1, 0, 0, 1, 'x', ${state}, ${n > 3 ? ms - 4 : ms})`;
      }),
  },
  {
    path: '/admin/credit-flags',
    key: 'org_id',
    fill: (tx) =>
      each(
        tx,
        (id, ms) =>
          sql`insert into credit_flags (org_id, flagged_ms, trusted_ms, detail) values (${id}, ${ms}, null, 'x')`,
      ),
  },
  {
    path: '/admin/webhook-endpoints',
    key: 'endpoint_id',
    fill: async (tx) => {
      await each(
        tx,
        (
          id,
          ms,
        ) => sql`insert into webhook_endpoints (id, org_id, url, event_types, status, secret_sealed, dead, dead_since_ms, created_ms)
          values (${id}, 'o', 'https://example.com/', '[]', 'healthy', 'x', 1, ${ms}, ${ms})`,
      );
      await each(
        tx,
        (
          id,
          ms,
        ) => sql`insert into webhook_deliveries (id, endpoint_id, event_id, event_type, instance_id, instance_version, body, status,
            attempts, max_attempts, next_trigger, deadline_ms, created_ms, completed_ms)
          values (${`d-${id}`}, ${id}, 'e', 'instance.running', 'i', 1, '{}', 'dead_lettered', 5, 5, 'schedule', ${ms}, ${ms}, ${ms})`,
      );
    },
  },
  {
    path: '/admin/reservations',
    key: 'reservation_id',
    fill: (tx) =>
      each(
        tx,
        (id, ms) =>
          sql`insert into reservations (id, org_id, title, status, renewal, commitment, starts_ms, ends_ms, created_ms)
              values (${id}, 'o', 'x', 'cancelled', 'none', ${COMMITMENT}, 0, 1, ${ms})`,
      ),
  },
  ...['', '?waiting=true', '?status=held_screening&org_id=o'].map((filter) => ({
    path: `/admin/deposits${filter}`,
    key: 'deposit_id',
    isPicked: filter === '?waiting=true',
    fill: (tx: Tx) =>
      each(
        tx,
        (id, ms, n) =>
          sql`insert into deposits (id, org_id, status, chain, asset, family, amount_cents, due_units, address, position, created_ms, expires_ms, watched_until_ms)
              values (${id}, 'o', 'held_screening', 'base', 'usdc', 'evm', 1, 1, ${id}, ${n}, ${ms}, 0, 0)`,
      ),
  })),
  {
    path: '/admin/deposits/addresses',
    key: 'address',
    // The list is in the order of positions, from the lowest one.
    fill: (tx) =>
      each(
        tx,
        (id, ms, n) =>
          sql`insert into deposit_addresses (family, position, address, created_ms) values ('evm', ${5 - n}, ${id}, ${ms})`,
      ),
  },
  ...['', '?status=running', '?org_id=o&machine_id=m'].map((filter) => ({
    path: `/admin/instances${filter}`,
    isPicked: filter === '' || filter === '?status=running',
    key: 'instance_id',
    fill: (tx: Tx) =>
      each(
        tx,
        (id, ms) =>
          sql`insert into instances (id, org_id, api_key_id, status, request, launch, gpu_type, gpu_count, tier, region, price_ucents_per_hour,
                machine_id, tried_machine_ids, create_operation_id, created_ms, entered_ms)
              values (${id}, 'o', 'k', 'running', ${REQUEST}, ${LAUNCH}, 'H100_SXM', 1, 'on_demand', 'eu', 1, 'm', '[]', 'op', ${ms}, ${ms})`,
      ),
  })),
  ...[
    '',
    '?since=1970-01-01T00:00:00Z',
    '?actor=a',
    '?operation=x',
    '?subject=s',
    '?actor=a&operation=x&subject=s',
  ].map((filter) => ({
    path: `/admin/audit${filter}`,
    key: 'request_id',
    fill: (tx: Tx) =>
      each(
        tx,
        (id, ms) =>
          sql`insert into audit_entries (id, at_ms, actor, operation, subject_id, parameters, outcome, request_id)
              values (${id}, ${ms}, 'a', 'x', 's', '{}', 'ok', ${id})`,
      ),
  })),
];
