// Machines of suppliers for a world: registered, enrolled, approved and online, with GPUs that no test needs to have. Also the check that the
// wire allows what their hosts are sent.
import type { Db } from '../../control-plane/base/db/db.ts';
import type { CapacityRequest } from '../../control-plane/fleet/supply/offerings.ts';
import type { MachineFacts } from '../../control-plane/fleet/supply/machine-view.ts';
import type { Rooms } from '../../control-plane/rooms.ts';
import type { Inventory } from '../../shared/protocol/inventory.ts';
import { type DesiredMessage, type HelloMessage, ServerMessage } from '../../shared/protocol/link.ts';

export interface MachineOptions {
  gpus?: number;
  /** The GPU as nvidia-smi names and measures it; an H100 with 80 GB by default. */
  gpu?: { name: string; memory_mib: number };
  dollars?: number;
  region?: string;
  /** Whether the host holds a disk to its size. */
  diskEnforced?: boolean;
  storageBytes?: number;
  cpuCores?: number;
  ramBytes?: number;
  driver?: string;
  /** The key of the host, base64url. By default nobody has its private half. */
  publicKey?: string;
}

/** A launch that takes any host with enough free GPUs of its type. */
export const ANYWHERE: Omit<CapacityRequest, 'gpuType' | 'gpuCount'> = {
  offeringId: null,
  region: null,
  maxPriceUcentsPerHour: null,
  diskGb: null,
  minVramGb: 0,
  endsMs: null,
  exceptMachineIds: [],
  trustedOnly: false,
};

/** The rooms of a process, and the database on which they stand. */
interface Fleet {
  rooms: Rooms;
  db: Db;
}

export interface MadeMachine {
  machineId: string;
  supplierId: string;
  /** The organisation of the supplier. */
  orgId: string;
  /** The inventory with which the machine has enrolled. */
  inventory: Inventory;
}

/** The first message of the host over its link. */
export function helloOf({ machineId, inventory }: MadeMachine, patch: Partial<HelloMessage> = {}): HelloMessage {
  return {
    type: 'hello',
    machine_id: machineId,
    proof: 'p',
    protocol: { min: 1, max: 1 },
    held: null,
    boot_id: 'b',
    inventory,
    clone_token: null,
    ...patch,
  };
}

/** A view of a machine of which nothing is known beyond its row. */
export const NO_FACTS: MachineFacts = {
  gpus: [],
  earnedTodayUcents: 0n,
  platformFeeBps: 0,
  reliability: {
    since: null,
    uptime: null,
    launches: 0,
    failed_launches: 0,
    failed_launch_share: null,
    rented: null,
  },
};

/** `newName` makes names that no other machine of the world has. */
export async function addMachine(
  rooms: Rooms,
  db: Db,
  newName: () => string,
  options: MachineOptions,
): Promise<MadeMachine> {
  const supplierOrg = await rooms.accounts.createOrg('supplier');
  const { machine, token } = await db.tx('test.machine', async (tx) => {
    await rooms.supply.registerSupplier(tx, supplierOrg.id);
    return rooms.supply.registerMachine(tx, supplierOrg.id, {
      gpuCount: null,
      gpuType: null,
      vramPerGpuGb: null,
      region: options.region ?? 'eu-west',
      priceUcentsPerHour: BigInt(Math.round((options.dollars ?? 2) * 1e8)),
      tier: 'on_demand',
    });
  });
  const plain = inventoryOf(options.gpus ?? 1, newName);
  const inventory = {
    ...plain,
    gpus: plain.gpus.map((gpu) => ({ ...gpu, ...options.gpu, driver_version: options.driver ?? gpu.driver_version })),
    cpu_cores: options.cpuCores ?? plain.cpu_cores,
    ram_bytes: options.ramBytes ?? plain.ram_bytes,
    disk_enforced: options.diskEnforced ?? false,
    storage_bytes: options.storageBytes ?? plain.storage_bytes,
  };
  await rooms.supply.enroll({ token, public_key: options.publicKey ?? newName().padEnd(43, 'k'), inventory });
  await linkHost({ rooms, db }, machine.id);
  await rooms.supply.approve(machine.id);
  return { machineId: machine.id, supplierId: machine.supplier_id, orgId: supplierOrg.id, inventory };
}

/** The host links, and repeats the inventory that it reported last. */
export async function linkHost({ rooms, db }: Fleet, machineId: string): Promise<void> {
  await db.tx('test.link_host', async (tx) => {
    await tx.lock('machine', machineId);
    const facts = await rooms.supply.factsOf(tx, machineId);
    if (facts?.machine.inventory == null) throw new Error(`the host of ${machineId} has not enrolled`);
    await rooms.supply.arrive(tx, facts, facts.machine.inventory);
  });
}

/** The link of the host is lost. */
export async function loseHost({ rooms }: Fleet, machineId: string): Promise<void> {
  await rooms.supply.loseLink(machineId, () => false);
}

/** `count` H100s. */
export function inventoryOf(count: number, newName: () => string): Inventory {
  return {
    gpus: Array.from({ length: count }, (_, index) => ({
      uuid: `GPU-${newName()}`,
      index,
      name: 'NVIDIA H100 80GB HBM3',
      memory_mib: 81_559,
      driver_version: '550.54.15',
      bus_id: `00000000:${(index + 16).toString(16)}:00.0`,
      foreign_use: false,
    })),
    gpu_error: '',
    gpu_faults: [],
    network_fence: 'nftables',
    fence_error: '',
    cpu_cores: 64,
    ram_bytes: 512 * 1024 ** 3,
    storage_bytes: 4000 * 1024 ** 3,
    disk_enforced: false,
    hostname: 'host',
    kernel: '6.1',
    engine_version: '20.10.24',
    container_toolkit_version: '',
    agent_version: '0.1.0',
  };
}

/** The message as the agent would decode it. */
export function overTheWire(message: DesiredMessage): DesiredMessage {
  const decoded = ServerMessage.parse(JSON.parse(JSON.stringify(message)));
  if (decoded.type !== 'desired') throw new Error(`a ${decoded.type} came out`);
  return decoded;
}
