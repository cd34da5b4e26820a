// Every list of the API that comes in pages: how entries get into it, and how they leave it. A list without a line here fails its test.
import { sql } from '../../control-plane/base/db/db.ts';
import { sumReceipts } from '../../control-plane/models/gateway/totals.ts';
import { LAUNCH } from '../kit/world.ts';
import type { Api, ApiAccount } from './api.ts';
import { makerFor } from './resources.ts';
import { bringMachine } from './suppliers.ts';

const SPEC = {
  instance_id: 'i-1',
  image: 'x',
  pull_login: false,
  command: { entrypoint: null, cmd: null },
  sealed_env: null,
  gpu_uuids: [],
  disk_gb: null,
  ends_at_ms: null,
};

export interface PagedList {
  /** The address with the query that all its pages have. */
  url: string;
  /** Adds an entry, and answers how to take it away, if that can be done. */
  add(): Promise<(() => Promise<unknown>) | undefined>;
  idOf(entry: Record<string, unknown>): string;
  /** What the entries stand under, if that is not `data`. */
  member?: 'entries';
  /** The list is in the order of names: what is added may still come. The others end where they began, however much is added. */
  isByName?: true;
}

type Open = (api: Api, owner: ApiAccount) => Promise<PagedList>;

/** The key is the id of the operation. */
export const PAGED_LISTS: Record<string, Open> = {
  listGpuTypes: async (api) => {
    const names = GPU_NAMES.values();
    const add = machines(api, () => names.next().value ?? 'A2');
    return { url: '/v1/gpu-types?', idOf: (entry) => String(entry['gpu_type']), add, isByName: true };
  },
  listPricing: async (api) => ({
    url: '/v1/pricing?',
    idOf: (entry) => String(entry['offering_id']),
    add: machines(api, () => 'A2'),
  }),
  // An operator's file, which nobody changes while the service runs.
  listTemplates: async () => ({ url: '/v1/templates?', idOf, add: async () => undefined, isByName: true }),
  listApiKeys: ofResource('/v1/api-keys'),
  listInvitations: ofResource('/v1/invitations'),
  listMembers: async (api, owner) => ({
    ...(await ofResource('/v1/members')(api, owner)),
    idOf: (entry) => String(entry['user_id']),
    add: async () => {
      const id = await makerFor('/v1/members/{user_id}')?.(api, owner);
      return () => api.call('DELETE', `/v1/members/${id}`, { key: owner.key });
    },
  }),
  listSshKeys: async (api, owner) => ({
    url: '/v1/ssh-keys?',
    idOf,
    add: async () => {
      const body = { name: 'x', public_key: newPublicKey(api) };
      const { json } = await api.call('POST', '/v1/ssh-keys', { key: owner.key, body });
      return () => api.call('DELETE', `/v1/ssh-keys/${idOf(json)}`, { key: owner.key });
    },
  }),
  listRegistryCredentials: ofResource('/v1/registry-credentials'),
  listDeposits: async (api, owner) => ({
    ...(await ofResource('/v1/deposits')(api, owner)),
    idOf: (entry) => String(entry['deposit_id']),
  }),
  listInstances: ofResource('/v1/instances'),
  listInstanceCosts: async (api, owner) => ({
    ...(await ofResource('/v1/instances')(api, owner)),
    url: '/v1/instance-costs?',
    idOf: (entry) => String(entry['instance_id']),
  }),
  listEvents: async (api, owner) => {
    const { db, rooms } = api.world;
    const event = { type: 'machine.listed', subjectId: 'm', orgId: owner.orgId, data: {} } as const;
    return {
      url: '/v1/events?',
      idOf,
      add: async () => {
        await db.tx('test.event', (tx) => rooms.events.append(tx, event));
        return undefined;
      },
    };
  },
  listInstanceEvents: async (api, owner) => {
    const { orgId } = owner;
    const subjectId = await launch(api, owner);
    const { db, rooms } = api.world;
    const event = { type: 'instance.recovered', subjectId, orgId, data: { status: 'running' } } as const;
    return {
      url: `/v1/instances/${subjectId}/events?`,
      idOf,
      add: async () => {
        await db.tx('test.event', (tx) => rooms.events.append(tx, event));
        return undefined;
      },
    };
  },
  listReceipts: async (api, owner) => ({
    url: '/v1/receipts?',
    idOf,
    add: async () => {
      await makerFor('/v1/receipts/{id}')?.(api, owner);
      return undefined;
    },
  }),
  listReceiptTotals: async (api, owner) => {
    const { db, clock } = api.world;
    let count = 0;
    return {
      url: '/v1/receipts/totals?bucket=hour&',
      idOf: (row) => `${String(row['model'])} at ${String(row['bucket_start'])}`,
      add: async () => {
        count += 1;
        const [receipt, model, atMs] = [api.ids.prefixed('rcp'), `m-${count}`, clock.now()];
        await db.tx('test.receipt', (tx) =>
          tx.run(
            sql`insert into request_receipts (id, org_id, api_key_id, request_id, model_id, tier, state, held_ucents, opened_ms, closed_ms)
                values (${receipt}, ${owner.orgId}, ${owner.principalId}, 'r', ${model}, 'serverless', 'released', 0, ${atMs}, ${atMs})`,
          ),
        );
        // Receipts are summed once they have settled.
        await clock.advance(3 * 60_000);
        await sumReceipts({ db, clock }, new AbortController().signal);
        return undefined;
      },
      isByName: true,
    };
  },
  listVideos: ofResource('/v1/videos'),
  listWebhookEndpoints: ofResource('/v1/webhook-endpoints'),
  listWebhookDeliveries: async (api, owner) => {
    const id = await makerFor('/v1/webhook-endpoints/{id}')?.(api, owner);
    return {
      url: `/v1/webhook-endpoints/${id}/deliveries?`,
      idOf,
      add: async () => {
        await launch(api, owner);
        return undefined;
      },
    };
  },
  listUsage: async (api, owner) => ({
    url: '/v1/usage?bucket=hour&group_by=instance_id&',
    idOf: (row) => `${String(row['instance_id'])} at ${String(row['bucket_start'])}`,
    add: async () => {
      const id = await launch(api, owner);
      await api.world.start(id);
      await api.world.clock.advance(10 * 60_000);
      return () => api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
    },
  }),
  listMachines: async (api, owner) => ({
    ...(await ofResource('/v1/community/machines')(api, owner)),
    idOf: (entry) => String(entry['machine_id']),
  }),
  listMachineOutages: async (api, owner) => {
    const machineId = await bringMachine(api, owner);
    let count = 0;
    return {
      url: `/v1/community/machines/${machineId}/outages?`,
      idOf: (entry) => String(entry['outage_id']),
      add: async () => {
        const columns = sql`id, cause, machine_id, evidence, opened_ms`;
        const row = sql`${`o-${(count += 1)}`}, 'outage', ${machineId}, 'dead', ${api.world.clock.now()}`;
        await api.world.db.tx('test.outage', (tx) => tx.run(sql`insert into outages (${columns}) values (${row})`));
        return undefined;
      },
    };
  },
  listMachineRentals: async (api, owner) => {
    const machineId = await bringMachine(api, owner);
    let count = 0;
    return {
      url: `/v1/community/machines/${machineId}/rentals?`,
      idOf: (entry) => String(entry['rental_id']),
      add: async () => {
        const id = `w-${(count += 1)}`;
        const spec = JSON.stringify({ ...SPEC, workload_id: id });
        const nowMs = api.world.clock.now();
        const columns = sql`id, machine_id, instance_id, state, spec, created_ms, changed_ms`;
        const row = sql`${id}, ${machineId}, 'i-1', 'gone', ${spec}, ${nowMs}, ${nowMs}`;
        await api.world.db.tx('test.workload', (tx) => tx.run(sql`insert into workloads (${columns}) values (${row})`));
        return undefined;
      },
    };
  },
  listEarnings: async (api, owner) => {
    await bringMachine(api, owner);
    return {
      url: '/v1/community/earnings?',
      member: 'entries',
      idOf: (entry) => String(entry['ledger_id']),
      add: async () => {
        await earn(api);
        return undefined;
      },
    };
  },
  listPayouts: async (api, owner) => {
    await bringMachine(api, owner);
    await earn(api);
    const { json } = await api.call('GET', '/v1/community/supplier', { key: owner.key });
    const supplierId = String(json['supplier_id']);
    return {
      url: '/v1/community/payouts?',
      idOf: (entry) => String(entry['payout_id']),
      add: async () => {
        await api.world.rooms.payouts.pay({ supplierId, cents: 1, reference: api.ids.secret(8) });
        return undefined;
      },
    };
  },
};

/** Something, for the one machine that is on offer. */
async function earn(api: Api): Promise<void> {
  const { world } = api;
  const customer = await world.customer(10_000);
  const id = await world.run(customer);
  await world.clock.advance(20 * 60_000);
  await world.end(customer, id);
}

/** The names stand in no order. */
const GPU_NAMES = ['L40', 'A10', 'H20', 'B200', 'A16', 'RTX 4090', 'L4', 'A40', 'RTX 5090', 'A30', 'H200', 'L40S'];

function idOf(entry: Record<string, unknown>): string {
  return String(entry['id']);
}

function ofResource(path: string): Open {
  return async (api, owner) => ({
    url: `${path}?`,
    idOf,
    add: async () => {
      const id = await makerFor(`${path}/{id}`)?.(api, owner);
      return () => api.call('DELETE', `${path}/${id}`, { key: owner.key });
    },
  });
}

function machines(api: Api, nextName: () => string): PagedList['add'] {
  return async () => {
    const { machineId } = await api.world.machine({ gpu: { name: `NVIDIA ${nextName()}`, memory_mib: 24_000 } });
    return () => api.world.rooms.supply.suspend(machineId);
  };
}

async function launch(api: Api, owner: ApiAccount): Promise<string> {
  await api.world.machine();
  return api.world.launch(owner, LAUNCH);
}

/** One that nobody has; any 32 bytes are an Ed25519 key. */
export function newPublicKey(api: Api): string {
  const field = (bytes: Buffer): Buffer => Buffer.concat([Buffer.from([0, 0, 0, bytes.length]), bytes]);
  const blob = Buffer.concat([
    field(Buffer.from('ssh-ed25519')),
    field(Buffer.from(api.ids.secret(64)).subarray(0, 32)),
  ]);
  return `ssh-ed25519 ${blob.toString('base64')}`;
}
