// Suppliers, their machines, the GPUs of the machines, and which launch holds each GPU.
import { createHash } from 'node:crypto';
import type { Clock } from '../../../shared/clock.ts';
import { codeOf, fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { ENROLLMENT_TOKEN_MS, MACHINES_AWAITED_MAX, MACHINES_PER_SUPPLIER_MAX } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import type { EnrollRequest, Inventory } from '../../../shared/protocol/inventory.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import { appraise } from './appraisal.ts';
import {
  arrive,
  factsOf,
  type HeldGpus,
  type IntakeDeps,
  type MachineFacts,
  noteGpus,
  reportInventory,
  takeInventory,
} from './intake.ts';
import { type Held, holdOffer, type Want } from './holding.ts';
import { release } from './kept-disks.ts';
import { type Leaving, openLeaving } from './leaving.ts';
import { type Listing, openListing, ownMachine } from './listing.ts';
import { refreshOfferings } from './offerings.ts';
import { type Online, openOnline } from './online.ts';
import { countLaunch, noteAllLinksDown } from './reliability.ts';
import { openReserving, type Reserving } from './reserving.ts';
import { serveWants } from './slots.ts';
import { orgOfMachine } from './owners.ts';
import * as store from './store.ts';

/** What a supplier declares about a machine before its host has enrolled. */
export interface DeclaredMachine {
  name?: string | undefined;
  gpuCount: number | null;
  gpuType: string | null;
  vramPerGpuGb: number | null;
  region: string;
  /** The retail price of one GPU. */
  priceUcentsPerHour: bigint;
  tier: 'on_demand' | 'spot';
}

export const NO_SUPPLIER = 'This organisation is no supplier yet: POST /v1/community/supplier first.';

export interface Supply extends Omit<Listing, 'noteReleased' | 'appraise'>, Online, Reserving, Leaving {
  /** The part of what customers pay that the service keeps. */
  platformFeeBps: number;
  /** The supplier of the organisation, created at the first call. */
  registerSupplier(tx: Tx, orgId: string): Promise<store.SupplierRow>;
  /** The enrolment token is only in this answer. @throws ServiceError `not_found` without a supplier */
  registerMachine(
    tx: Tx,
    orgId: string,
    declared: DeclaredMachine,
  ): Promise<{ machine: store.MachineRow; token: string }>;
  /** Makes a new token for a machine that never enrolled (the old token was lost or has expired), or that is delisted and gets another host. */
  reissueToken(tx: Tx, orgId: string, machineId: string): Promise<{ machine: store.MachineRow; token: string }>;
  /**
   * Binds the key of the host to the machine of the token. A repeat with the same key succeeds. @throws ServiceError `enrollment_token_*`
   */
  enroll(request: EnrollRequest): Promise<{ machineId: string }>;
  /**
   * Stores what the host reports about itself. False if it is ignored, because two hosts share the identity of the machine, or if a launch could not
   * take what it says about GPUs.
   */
  reportInventory(machineId: string, inventory: Inventory): Promise<boolean>;
  /** What `arrive` needs to know about a machine; undefined if it is gone. */
  factsOf(query: Query, machineId: string): Promise<MachineFacts | undefined>;
  /**
   * The link of a machine is up: marks it online, and stores its inventory if it has changed. Returns what the host reports about the GPUs
   * that launches hold, for `noteGpus` after the commit.
   */
  arrive(tx: Tx, facts: MachineFacts, inventory: Inventory): Promise<HeldGpus[]>;
  /** Passes on what a host reports about the GPUs that launches hold. A launch that cannot take it is logged. @throws DbError */
  noteGpus(machineId: string, found: readonly HeldGpus[]): Promise<void>;
  /**
   * Containers on the host that this database does not know; null: not reported yet. Nothing new is placed there until the list is empty.
   */
  setUnknownWorkloads(tx: Tx, machineId: string, workloadIds: readonly string[] | null): Promise<void>;
  isUnknownWorkload(query: Query, machineId: string, workloadId: string): Promise<boolean>;
  /**
   * Two hosts share the identity of the machine (true), or the operator confirms that there is one again (false). Until then nothing new is
   * placed there, and reports that a running container is gone are ignored. @throws ServiceError `not_found`, `conflict` for false alone
   */
  setCopied(machineId: string, isCopied: boolean): Promise<store.MachineRow>;
  isCopied(query: Query, machineId: string): Promise<boolean>;
  /** Trust lets replicas of models and training be placed there. What runs already goes on if the trust ends. @throws ServiceError `not_found` */
  setTrusted(machineId: string, isTrusted: boolean): Promise<store.MachineRow>;
  /** Takes a machine off the market until the operator approves it again, and ends its trust. `detail` is the reason. */
  accuse(tx: Tx, machineId: string, detail: string): Promise<void>;
  /** Marks all machines offline, because what the database knows about them is too old. */
  setAllOffline(): Promise<void>;
  /** Counts a launch on the machine that runs, or that its host has failed. */
  countLaunch(tx: Tx, machineId: string, failed: boolean): Promise<void>;
  /** Updates the heartbeats of these machines. */
  noteHeartbeats(machineIds: readonly string[]): Promise<void>;
  /** A page of the machines that count as online, in the order of ids. */
  onlineMachineIds(afterId: string, limit: number): Promise<string[]>;
  /** Holds GPUs for `heldBy` and reads their offering (`holdOffer`). Undefined if there are too few; then nothing is held. */
  hold(tx: Tx, want: Want): Promise<Held | undefined>;
  /** Releases what `heldBy` holds; with `keepsDisk` all but its disk, which a later call releases. */
  release(tx: Tx, heldBy: string, keepsDisk?: boolean): Promise<void>;
}

interface SupplyDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  events: Events;
  /** The host reports about GPUs that launches hold. */
  onGpus(found: readonly HeldGpus[]): Promise<void>;
  /** The price of disk space beyond the included one, on hosts that enforce disk_gb. */
  diskPriceUcentsPerGbHour: bigint;
  platformFeeBps: number;
}

export function openSupply(deps: SupplyDeps): Supply {
  const { db, clock } = deps;
  const offer = (tx: Tx, machineId: string): Promise<void> => refresh(tx, machineId, deps);
  const listing = openListing({
    ...deps,
    appraise: (tx, machineId) => appraise(tx, machineId, { ...deps, refresh: offer }),
  });
  const intake = { ...deps, appraise: listing.appraise, refresh: offer };
  return {
    ...listing,
    ...openOnline({ db, clock, refresh: offer }),
    ...openReserving({ db, refresh: offer }),
    ...openLeaving({ db, clock, refresh: offer }),
    platformFeeBps: deps.platformFeeBps,
    registerSupplier: (tx, orgId) => registerSupplier(tx, orgId, deps),
    registerMachine: (tx, orgId, declared) => registerMachine(tx, orgId, declared, deps),
    reissueToken: async (tx, orgId, machineId) => {
      const machine = await ownMachine(tx, orgId, machineId);
      if (machine.public_key !== null && machine.status !== 'delisted') {
        return fail('conflict', 'This machine has enrolled already. To give it another host, delist it first.');
      }
      return { machine, token: await newToken(tx, machine.id, deps) };
    },
    enroll: (request) => enroll(request, { ...deps, ...intake }),
    reportInventory: (machineId, inventory) => reportInventory(machineId, inventory, intake),
    factsOf,
    arrive: (tx, facts, inventory) => arrive(tx, facts, inventory, intake),
    noteGpus: async (machineId, found) => void (await noteGpus(machineId, found, deps)),
    setUnknownWorkloads: (tx, machineId, ids) => setUnknownWorkloads(tx, machineId, ids, deps),
    isUnknownWorkload: async (query, machineId, workloadId) =>
      (await store.findMachine(query, machineId))?.unknown_workloads?.includes(workloadId) === true,
    setCopied: (machineId, isCopied) => setCopied(machineId, isCopied, deps),
    isCopied: async (query, machineId) => ((await store.findMachine(query, machineId))?.copied_ms ?? null) !== null,
    setTrusted: (machineId, isTrusted) => setTrusted(machineId, isTrusted, deps),
    accuse: (tx, machineId, detail) =>
      store.setInventoryFault(tx, machineId, detail).then(() => listing.appraise(tx, machineId)),
    setAllOffline: () => db.tx('supply.all_offline', (tx) => setAllOffline(tx, clock.now())),
    countLaunch: (tx, machineId, failed) => countLaunch(tx, machineId, { failed, nowMs: clock.now() }),
    noteHeartbeats: (machineIds) =>
      db.tx('supply.heartbeats', async (tx) => {
        await tx.lock('machine', ...machineIds);
        await store.noteHeartbeats(tx, machineIds, clock.now());
      }),
    onlineMachineIds: (afterId, limit) => store.onlineMachineIds(db.read, afterId, limit),
    hold: holdOffer,
    release: async (tx, heldBy, keepsDisk = false) => {
      for (const machineId of await release(tx, heldBy, keepsDisk)) await listing.noteReleased(tx, machineId);
    },
  };
}

/** Marks all machines offline, because what the database knows about them is too old. */
export async function setAllOffline(tx: Tx, nowMs: number): Promise<void> {
  await store.setAllOffline(tx);
  await noteAllLinksDown(tx, nowMs);
}

async function registerSupplier(tx: Tx, orgId: string, { ids, clock }: SupplyDeps): Promise<store.SupplierRow> {
  const now = clock.now();
  await store.insertSupplier(tx, { id: ids.uuid(), org_id: orgId, status: 'active', created_ms: now, updated_ms: now });
  return (await store.supplierOfOrg(tx, orgId)) ?? fail('internal_error', 'The supplier vanished while it was made.');
}

async function registerMachine(
  tx: Tx,
  orgId: string,
  declared: DeclaredMachine,
  deps: SupplyDeps,
): Promise<{ machine: store.MachineRow; token: string }> {
  const supplier = await store.supplierOfOrg(tx, orgId);
  if (supplier === undefined) return fail('not_found', NO_SUPPLIER);
  if (supplier.status === 'suspended') {
    return fail('conflict', 'This supplier is suspended and cannot register machines.');
  }
  if (!(await store.countMachine(tx, supplier.id, MACHINES_PER_SUPPLIER_MAX))) {
    return fail(
      'conflict',
      `A supplier may have ${MACHINES_PER_SUPPLIER_MAX} machines, delisted ones included. Give a delisted one another host: POST /v1/community/machines/{id}/token.`,
    );
  }
  if ((await store.countAwaited(tx, supplier.id)) >= MACHINES_AWAITED_MAX) {
    return fail(
      'conflict',
      `${MACHINES_AWAITED_MAX} machines of yours wait for their hosts already. Enrol one of them first: POST /v1/community/machines/{id}/token.`,
    );
  }
  const machine = newMachine(deps.ids.uuid(), supplier.id, declared, deps.clock.now());
  await store.insertMachine(tx, machine);
  await deps.events.append(tx, {
    type: 'machine.registered',
    subjectId: machine.id,
    orgId,
    data: { supplier_id: supplier.id },
  });
  return { machine, token: await newToken(tx, machine.id, deps) };
}

async function newToken(tx: Tx, machineId: string, { ids, clock }: SupplyDeps): Promise<string> {
  const token = `enroll_${ids.secret(32)}`;
  await store.endUnusedTokens(tx, machineId);
  await store.insertToken(tx, {
    token_hash: hashToken(token),
    machine_id: machineId,
    expires_ms: clock.now() + ENROLLMENT_TOKEN_MS,
    used_by_key: null,
  });
  return token;
}

/** The code of PostgreSQL. SQLite runs one body after another, so a check in the body finds a row that exists. */
const UNIQUE_VIOLATION = '23505';

type EnrollDeps = SupplyDeps & IntakeDeps;

async function enroll(request: EnrollRequest, deps: EnrollDeps): Promise<{ machineId: string }> {
  const hash = hashToken(request.token);
  const machineId = (await store.findToken(deps.db.read, hash))?.machine_id ?? '';
  const once = (): Promise<{ machineId: string }> =>
    deps.db.tx('supply.enroll', async (tx) => {
      await tx.lock('machine', machineId);
      return useToken(tx, hash, request, deps);
    });
  // A host has one key and is one machine. If it has become another one meanwhile, the second attempt finds that and names it.
  return once().catch((error: unknown) => (codeOf(error) === UNIQUE_VIOLATION ? once() : Promise.reject(error)));
}

async function useToken(
  tx: Tx,
  hash: string,
  request: EnrollRequest,
  deps: EnrollDeps,
): Promise<{ machineId: string }> {
  const token = await store.findToken(tx, hash);
  if (token === undefined) {
    return fail('enrollment_token_invalid', 'Check that the whole token was copied, or register the machine again.');
  }
  const isFresh = token.used_by_key === null;
  if (isFresh && token.expires_ms <= deps.clock.now()) {
    return fail(
      'enrollment_token_expired',
      'Tokens live 24 hours, and a new one ends the one before. Ask for one: POST /v1/community/machines/{id}/token.',
    );
  }
  if (!(await store.useToken(tx, hash, request.public_key))) {
    return fail('enrollment_token_used', 'This token has enrolled another host. Register this machine to get its own.');
  }
  if (!isFresh) return repeated(tx, token.machine_id, request.public_key);
  const other = await store.machineOfKey(tx, request.public_key, token.machine_id);
  if (other !== undefined) {
    return fail(
      'conflict',
      `This host is machine ${other} already. Give the token to another host; or, once nothing runs here, stop the agent, remove its state_dir and enrol again.`,
    );
  }
  await giveHost(tx, token.machine_id, request.public_key);
  await takeInventory(tx, token.machine_id, request.inventory, deps);
  await deps.events.append(tx, {
    type: 'machine.enrolled',
    subjectId: token.machine_id,
    orgId: await orgOfMachine(tx, token.machine_id),
    data: { gpus: request.inventory.gpus.length },
  });
  return { machineId: token.machine_id };
}

/**
 * A host that did not get the answer asks again, and its scripts may do so at every boot. A repeat stores nothing: the request does not prove the
 * key, and the link of the host, which does, brings its inventory.
 */
async function repeated(tx: Tx, machineId: string, publicKey: string): Promise<{ machineId: string }> {
  const machine = await store.findMachine(tx, machineId);
  if (machine?.public_key === publicKey) return { machineId };
  return fail(
    'enrollment_token_used',
    'The machine of this token has another host now. To give it this host again, ask for a new token: POST /v1/community/machines/{id}/token.',
  );
}

/** A different host is a new machine to the operator, so the approval of the previous host and its trust end. */
async function giveHost(tx: Tx, machineId: string, publicKey: string): Promise<void> {
  const machine = await store.findMachine(tx, machineId);
  if (machine === undefined || machine.public_key === publicKey) return;
  if (machine.public_key !== null) {
    if (machine.status !== 'delisted') {
      fail('conflict', 'This machine has another host, and is on offer again. Delist it first, then enrol.');
    }
    await store.setApproved(tx, machineId, null);
    await store.setTrusted(tx, machineId, false);
  }
  await store.setMachineKey(tx, machineId, publicKey);
}

async function setUnknownWorkloads(
  tx: Tx,
  machineId: string,
  workloadIds: readonly string[] | null,
  deps: SupplyDeps,
): Promise<void> {
  if (!(await store.setUnknownWorkloads(tx, machineId, workloadIds))) return;
  if (workloadIds !== null && workloadIds.length > 0) {
    deps.log.error(
      { machine_id: machineId, unknown_workload_ids: workloadIds },
      'a host runs containers that this database does not know; they keep running, and nothing new is placed there',
    );
  }
  await refresh(tx, machineId, deps);
}

async function setCopied(machineId: string, isCopied: boolean, deps: SupplyDeps): Promise<store.MachineRow> {
  const { db, clock, log } = deps;
  const [machine, isNew] = await db.tx('supply.copied', async (tx) => {
    await tx.lock('machine', machineId);
    const changed = await store.setCopied(tx, machineId, isCopied ? clock.now() : null);
    const row = await store.findMachine(tx, machineId);
    if (row === undefined) return fail('not_found', `There is no machine ${machineId}.`);
    if (!changed && !isCopied) return fail('conflict', 'One host alone has the identity of this machine already.');
    await refresh(tx, machineId, deps);
    return [row, changed];
  });
  if (isCopied && isNew) {
    log.error(
      { machine_id: machineId },
      'two hosts run with the identity of this machine, from copies of one disk: nothing new is placed there; find the one that should not exist, end it for good, then run admin machine unify',
    );
  }
  return machine;
}

async function setTrusted(machineId: string, isTrusted: boolean, { db }: SupplyDeps): Promise<store.MachineRow> {
  return db.tx('supply.trust', async (tx) => {
    await tx.lock('machine', machineId);
    await store.setTrusted(tx, machineId, isTrusted);
    return (await store.findMachine(tx, machineId)) ?? fail('not_found', `There is no machine ${machineId}.`);
  });
}

/** Free GPUs first go to the contracts that need them, and the rest is on offer. */
async function refresh(tx: Tx, machineId: string, deps: SupplyDeps): Promise<void> {
  await tx.lock('machine', machineId);
  const { ids, clock, diskPriceUcentsPerGbHour } = deps;
  const now = { newId: () => ids.prefixed('off'), nowMs: clock.now(), diskPriceUcentsPerGbHour };
  await refreshOfferings(tx, machineId, now);
  if (await serveWants(tx, machineId)) await refreshOfferings(tx, machineId, now);
}

function newMachine(id: string, supplierId: string, declared: DeclaredMachine, nowMs: number): store.MachineRow {
  return {
    id,
    supplier_id: supplierId,
    name: declared.name ?? null,
    status: 'pending_verification',
    approved: false,
    trusted: false,
    approved_gpus: null,
    inventory_fault: null,
    verification_status: 'unverified',
    verification_detail: null,
    declared_gpu_count: declared.gpuCount,
    declared_gpu_type: declared.gpuType,
    declared_vram_per_gpu_gb: declared.vramPerGpuGb,
    region: declared.region,
    price_ucents_per_hour: declared.priceUcentsPerHour,
    tier: declared.tier,
    public_key: null,
    inventory: null,
    online: false,
    last_heartbeat_ms: null,
    unknown_workloads: [],
    copied_ms: null,
    rentable_until_ms: null,
    offer_ended: false,
    created_ms: nowMs,
    updated_ms: nowMs,
    supplier_status: 'active',
  };
}

function hashToken(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}
