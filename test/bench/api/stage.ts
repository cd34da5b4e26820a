// The stage of an API bench: the real control plane as a process with 10,000 offerings and some customers, and the bare peer.
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { Client } from 'pg';
import { SERVE_FLAGS } from '../../../control-plane/base/systemd/v8.ts';
import { accountId, funding, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { startControlPlane } from '../../kit/control-plane.ts';
import { busyboxImage } from '../../kit/images.ts';
import { startRegistry } from '../../kit/registry.ts';
import { type Side, startSide } from '../side.ts';

export interface Stage {
  /** `http://host:port` of the control plane. */
  service: string;
  /** The same of the peer; undefined on PostgreSQL. */
  peer: string | undefined;
  client: Side;
  /** An API key of each customer, in one text, as the client takes them. */
  keys: string;
  /** The image of a launch. */
  image: string;
  /** Process ids. */
  pids: { service: number; peer: number };
  close(): Promise<void>;
}

interface StageOptions {
  /** The database of the control plane, and the same without the way to it; left out, it is on SQLite. */
  postgres?: { url: string; nearUrl: string };
}

const CLIENT = new URL('./client.ts', import.meta.url);
const PEER = new URL('./peer.ts', import.meta.url);
const OFFERINGS = 10_000;
const GPUS_EACH = 8;
/** Suppliers name prices in whole cents, so several machines cost the same. */
const PRICED_ALIKE = 50;
/** Nothing ends their launches, and each may have 50 in progress by default. */
const CUSTOMERS = 100;
const MONEY_UCENTS = 10n ** 15n;
/** Every launch takes a port. On an address of their own they collide with nothing. */
const SSH = { host: '127.0.0.9', port_range: { first: 2_000, last: 21_999 } };
const NO_LIMIT = 1_000_000;

export async function openStage({ postgres }: StageOptions = {}): Promise<Stage> {
  const dir = mkdtempSync(join(tmpdir(), 'bench-api-'));
  const undo: (() => Promise<unknown>)[] = [];
  const close = async (): Promise<void> => {
    while (undo.length > 0) await undo.pop()?.();
    rmSync(dir, { recursive: true });
  };
  try {
    const registry = await startRegistry();
    undo.push(() => registry.stop());
    const image = await busyboxImage(registry);
    const { daemon, databaseFile, baseUrl } = await startControlPlane(join(dir, 'cp'), {
      postgresUrl: postgres?.url,
      registries: [registry.host],
      authority: undefined,
      settings: {
        ssh: SSH,
        rate_limits: { per_key_per_second: NO_LIMIT, per_ip_per_second: NO_LIMIT, burst: NO_LIMIT },
      },
    });
    undo.push(() => daemon.stop());
    const statements = [...customers(), ...machines()];
    const copy = join(dir, 'peer.db');
    if (postgres === undefined) fillSqlite(databaseFile, statements, copy);
    else await fillPostgres(postgres.nearUrl, statements);
    const client = await startSide(CLIENT);
    undo.push(() => client.stop());
    const peer = postgres === undefined ? await startSide(PEER, { flags: SERVE_FLAGS }) : undefined;
    if (peer !== undefined) undo.push(() => peer.stop());
    const { first: firstPort, last: lastPort } = SSH.port_range;
    const served = await peer?.ask({ kind: 'serve', file: copy, firstPort, lastPort });
    return {
      service: new URL(baseUrl).origin,
      peer: served && `http://127.0.0.1:${served['port']}`,
      client,
      keys: Array.from({ length: CUSTOMERS }, (_, i) => keyOf(i)).join(' '),
      image: image.ref,
      pids: { service: daemon.pid(), peer: peer?.pid ?? 0 },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

function keyOf(customer: number): string {
  return `svc_live_bench_${customer}`;
}

/** Organisations with an API key and money, without the operator's command for each. */
function customers(): string[] {
  const scopes = JSON.stringify(['instances:read', 'instances:write']);
  return Array.from({ length: CUSTOMERS }, (_, i) => {
    const [org, hash] = [`org-${i}`, createHash('sha256').update(keyOf(i)).digest('hex')];
    const account = accountId(wallet(org));
    return `insert into orgs (id, name, created_ms) values ('${org}', 'customer', 0);
      insert into api_keys (id, org_id, name, prefix, key_hash, scopes, created_ms)
        values ('apk-${i}', '${org}', 'first', 'svc_live', '${hash}', '${scopes}', 0);
      insert into ledger_accounts (id, kind, owner_id, prepaid, debits_ucents, credits_ucents, created_ms)
        values ('${account}', '${wallet(org).kind}', '${org}', 1, 0, ${MONEY_UCENTS}, 0);
      insert into transfers (id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, effective_ms, posted_ms)
        values ('fund-${i}', 'fund-${i}', '${accountId(funding)}', '${account}', ${MONEY_UCENTS}, 'funding.manual', '${org}', 1, 1)`;
  });
}

/** Machines as if their agents were connected. */
function machines(): string[] {
  const numbers = (count: number): string =>
    `with recursive n(i) as (select 0 union all select i + 1 from n where i + 1 < ${count})`;
  return [
    `insert into suppliers (id, org_id, status, created_ms, updated_ms) values ('s', 'o', 'active', 0, 0)`,
    `insert into machines (id, supplier_id, status, verification_status, region, price_ucents_per_hour, tier, online, created_ms, updated_ms)
      ${numbers(OFFERINGS)} select 'm' || i, 's', 'listed', 'verified', 'eu', 100000000 + (i / ${PRICED_ALIKE}) * 1000000, 'on_demand', 1, i, i from n`,
    `insert into offerings (id, machine_id, gpu_type, region, tier, price_ucents_per_hour, vram_gb, cpu_cores, ram_gb, storage_gb,
        disk_configurable, disk_free_gb, disk_price_ucents_per_gb_hour, gpu_total, gpu_free, listed, created_ms)
      select 'off_' || id, id, 'H100_SXM', region, tier, price_ucents_per_hour, 80, 64, 512, 4000, 0, 4000, 0,
        ${GPUS_EACH}, ${GPUS_EACH}, 1, created_ms from machines`,
    `insert into machine_gpus (machine_id, gpu_uuid, gpu_index, gpu_type, vram_gb, usable)
      ${numbers(GPUS_EACH)} select id, 'GPU-' || id || '-' || i, i, 'H100_SXM', 80, 1 from machines, n`,
  ];
}

/** Then everything is copied into the file `copy`. */
function fillSqlite(file: string, statements: readonly string[], copy: string): void {
  const database = new Database(file);
  database.exec(['begin immediate', ...statements, 'commit'].join(';\n'));
  database.prepare('vacuum into ?').run(copy);
  database.close();
}

async function fillPostgres(url: string, statements: readonly string[]): Promise<void> {
  const database = new Client({ connectionString: url });
  await database.connect();
  const filled = ['machines', 'offerings', 'machine_gpus', 'endpoint_ports'].join(', ');
  // The other tables are empty, and the planner must not believe that they stay so.
  await database.query(['begin', ...statements, 'commit', `analyze ${filled}`].join(';\n'));
  await database.end();
}
