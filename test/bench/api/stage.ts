// The stage of an API bench: the real control plane as a process with 10,000 offerings, a customer, and the bare peer.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { NewApiKey, Org } from '../../../shared/api/account.ts';
import { type ControlPlane, startControlPlane } from '../../kit/control-plane.ts';
import { busyboxImage } from '../../kit/images.ts';
import { startRegistry } from '../../kit/registry.ts';
import { type Side, startSide } from '../side.ts';

export interface Stage {
  /** `http://host:port` of each. */
  service: string;
  peer: string;
  client: Side;
  /** API key of the customer. */
  key: string;
  /** Of a launch. */
  image: string;
  close(): Promise<void>;
}

const CLIENT = new URL('./client.ts', import.meta.url);
const PEER = new URL('./peer.ts', import.meta.url);
const OFFERINGS = 10_000;
const GPUS_EACH = 8;
/** Every launch takes a port. On an address of their own they collide with nothing. */
const SSH = { host: '127.0.0.9', port_range: { first: 2_000, last: 21_999 } };
const NO_LIMIT = 1_000_000;

export async function openStage(): Promise<Stage> {
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
    const controlPlane = await startControlPlane(join(dir, 'cp'), {
      postgresUrl: undefined,
      registries: [registry.host],
      authority: undefined,
      settings: {
        ssh: SSH,
        open_launches_per_org: NO_LIMIT,
        unpaid_gpu_hours_per_org: NO_LIMIT,
        rate_limits: { per_key_per_second: NO_LIMIT, per_ip_per_second: NO_LIMIT, burst: NO_LIMIT },
      },
    });
    undo.push(() => controlPlane.daemon.stop());
    const customer = await addCustomer(controlPlane);
    const copy = join(dir, 'peer.db');
    fill(controlPlane.databaseFile, copy);
    const [client, peer] = [await startSide(CLIENT), await startSide(PEER)];
    undo.push(
      () => client.stop(),
      () => peer.stop(),
    );
    const { first: firstPort, last: lastPort } = SSH.port_range;
    const { port } = await peer.ask({ kind: 'serve', file: copy, firstPort, lastPort, ...customer });
    const [service, peerUrl] = [new URL(controlPlane.baseUrl).origin, `http://127.0.0.1:${port}`];
    return { service, peer: peerUrl, client, key: customer.key, image: image.ref, close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function addCustomer({ operator }: ControlPlane): Promise<{ orgId: string; apiKeyId: string; key: string }> {
  const { id: orgId } = Org.parse(await operator('admin', 'org', 'create', '--name', 'customer'));
  const scopes = ['--scopes', 'instances:read,instances:write'];
  const made = await operator('admin', 'key', 'create', '--org', orgId, '--name', 'first', ...scopes);
  await operator('admin', 'balance', 'add', '--org', orgId, '--usd', '1000000', '--reference', 'bench');
  const { id: apiKeyId, key } = NewApiKey.parse(made);
  return { orgId, apiKeyId, key };
}

/** Machines as if their agents were connected; then a copy of everything in the file `copy`. */
function fill(file: string, copy: string): void {
  const database = new Database(file);
  const numbers = (count: number): string =>
    `with recursive n(i) as (select 0 union all select i + 1 from n where i + 1 < ${count})`;
  database.exec(`begin immediate;
    insert into suppliers (id, org_id, status, created_ms, updated_ms) values ('s', 'o', 'active', 0, 0);
    insert into machines (id, supplier_id, status, verification_status, region, price_ucents_per_hour, tier, online, created_ms, updated_ms)
      ${numbers(OFFERINGS)} select 'm' || i, 's', 'listed', 'verified', 'eu', 100000000 + i * 1000, 'on_demand', 1, i, i from n;
    insert into offerings (id, machine_id, gpu_type, region, tier, price_ucents_per_hour, vram_gb, cpu_cores, ram_gb, storage_gb,
        disk_configurable, disk_free_gb, disk_price_ucents_per_gb_hour, gpu_total, gpu_free, listed, created_ms)
      select 'off_' || id, id, 'H100_SXM', region, tier, price_ucents_per_hour, 80, 64, 512, 4000, 0, 4000, 0,
        ${GPUS_EACH}, ${GPUS_EACH}, 1, created_ms from machines;
    insert into machine_gpus (machine_id, gpu_uuid, gpu_index, gpu_type, vram_gb, usable)
      ${numbers(GPUS_EACH)} select id, 'GPU-' || id || '-' || i, i, 'H100_SXM', 80, 1 from machines, n;
    commit;`);
  database.prepare('vacuum into ?').run(copy);
  database.close();
}
