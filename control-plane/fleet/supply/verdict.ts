// Pure: whether a host shows what its supplier has declared, and whether its GPUs and its toolkit are fit for customers.
import type { GpuFault, Inventory } from '../../../shared/protocol/inventory.ts';
import { driverWords, missingWords } from './approval.ts';
import { identifyGpu } from './known-gpus.ts';
import type { MachineRow, Verification } from './store.ts';

type Claims = Pick<
  MachineRow,
  | 'declared_gpu_count'
  | 'declared_gpu_type'
  | 'declared_vram_per_gpu_gb'
  | 'approved_gpus'
  | 'inventory_fault'
  | 'inventory'
>;

/**
 * `failed`: the host contradicts the declaration or the approval, or shows GPUs that another machine claims (`elsewhere` is their number).
 * Otherwise `unverified`: only the host itself has counted its GPUs, and we cannot check them from outside.
 */
export function verificationOf(machine: Claims, elsewhere: number): Verification {
  const { inventory, approved_gpus: approved } = machine;
  if (inventory === null) return { verification_status: 'unverified', verification_detail: null };
  const faults = [...declarationFaults(machine, inventory), ...approvalFaults(machine, inventory)];
  if (elsewhere > 0) faults.push(`${elsewhere} of its GPUs belong to another machine that the operator approved first`);
  if (faults.length > 0) return { verification_status: 'failed', verification_detail: `${faults.join('; ')}.` };
  if (inventory.gpu_error !== '') {
    const detail = `The GPUs cannot be counted; on the host, nvidia-smi says: ${inventory.gpu_error}`;
    return { verification_status: 'unverified', verification_detail: detail };
  }
  const driver = driverWords(approved ?? [], inventory);
  return { verification_status: 'unverified', verification_detail: driver === undefined ? null : `${driver}.` };
}

/** Whether the operator must approve again what the host shows. */
export function awaitsApproval({ approved_gpus: approved, inventory_fault: fault, inventory }: Claims): boolean {
  if (approved === null || inventory === null) return false;
  return fault !== null || driverWords(approved, inventory) !== undefined;
}

/** What the supplier declared and the host does not show; empty if the host cannot count its GPUs now. */
export function declarationFaults(machine: Claims, inventory: Inventory): string[] {
  if (inventory.gpu_error !== '') return [];
  return contradictions(
    machine,
    inventory.gpus.map((gpu) => identifyGpu(gpu.name, gpu.memory_mib)),
  );
}

function approvalFaults({ approved_gpus: approved, inventory_fault: fault }: Claims, inventory: Inventory): string[] {
  if (approved === null) return [];
  const missing = missingWords(approved, inventory);
  return [...(fault === null ? [] : [`${fault}; the operator must approve it again`]), ...(missing ? [missing] : [])];
}

function contradictions(machine: Claims, shown: ReturnType<typeof identifyGpu>[]): string[] {
  const { declared_gpu_count: count, declared_gpu_type: type, declared_vram_per_gpu_gb: vramGb } = machine;
  const types = new Set(shown.map((gpu) => gpu.gpu_type));
  const sizes = new Set(shown.map((gpu) => gpu.vram_gb));
  const faults: string[] = [];
  if (count !== null && count !== shown.length) faults.push(contradiction('gpu_count', count, [shown.length]));
  if (type !== null && [...types].some((each) => each.toLowerCase() !== type.toLowerCase())) {
    faults.push(contradiction('gpu_type', type, types));
  }
  if (vramGb !== null && [...sizes].some((each) => each !== vramGb)) {
    faults.push(contradiction('vram_per_gpu_gb', vramGb, sizes));
  }
  return faults;
}

function contradiction(field: string, declared: string | number, shown: Iterable<string | number>): string {
  return `${field} is declared as ${declared}, the host shows ${[...shown].join(', ')}`;
}

/** A text for people: the GPUs that cannot be rented, with the reasons. A reason that several have stands there once. */
export function faultWords(faults: readonly GpuFault[]): string {
  const byReason = Map.groupBy(faults, ({ severity, detail }) => `${severity}: ${detail}`);
  return [...byReason]
    .map(([reason, its]) => `${its.map(({ uuid }) => uuid).join(', ')} ${its.length === 1 ? 'is' : 'are'} ${reason}`)
    .join('; ');
}

/**
 * The reason why the holder of these GPUs cannot compute; null if it can, undefined if the host does not know. If nvidia-smi lists other
 * GPUs but not this one, the GPU is lost. If nvidia-smi fails completely, the cause may be only a new driver.
 */
export function brokenWords(inventory: Inventory, uuids: readonly string[]): string | null | undefined {
  const { gpus, gpu_error: error, gpu_faults: faults } = inventory;
  const words = uuids.flatMap((uuid) => {
    const fault = faults.find((one) => one.uuid === uuid && one.severity === 'broken');
    if (fault !== undefined) return [`${uuid}: ${fault.detail}`];
    return error !== '' || gpus.some((gpu) => gpu.uuid === uuid) ? [] : [`${uuid}: the host does not list it any more`];
  });
  if (words.length > 0) return words.join('; ');
  return error === '' ? null : undefined;
}

/** Escapes from published advisories. Each affects all versions below `fixed`. */
const ESCAPES: readonly { cve: string; fixed: string }[] = [
  { cve: 'CVE-2024-0132', fixed: '1.16.2' },
  { cve: 'CVE-2025-23359', fixed: '1.17.4' },
  { cve: 'CVE-2025-23266', fixed: '1.17.8' },
  { cve: 'CVE-2025-23267', fixed: '1.17.8' },
];

/** The reason why this version must not run containers of customers; undefined if no escape is known, or if the version is unknown. */
export function toolkitObstacle(version: string): string | undefined {
  const known = ESCAPES.filter(({ fixed }) => isBelow(version, fixed));
  const last = known.at(-1);
  if (last === undefined) return undefined;
  const names = known.map(({ cve }) => cve).join(', ');
  return `The NVIDIA Container Toolkit ${version} of the host lets containers out (${names}): install ${last.fixed} or newer.`;
}

/** The reason why no GPU of the host can be rented. */
export function gpuObstacleOf({ gpus, gpu_error: error, gpu_faults: faults }: Inventory): string | undefined {
  const faultText = faults.length === 0 ? '' : ` ${faultWords(faults)}.`;
  if (error !== '') return `nvidia-smi fails on the host.${faultText}`;
  if (gpus.length === 0) return `The host shows no GPU.${faultText}`;
  if (gpus.every((gpu) => gpu.foreign_use)) return 'Processes outside of this service use every GPU of the host.';
  const faulty = new Set(faults.map(({ uuid }) => uuid));
  if (!gpus.every((gpu) => gpu.foreign_use || faulty.has(gpu.uuid))) return undefined;
  return `No GPU of the host is free of others and fit to be rented.${faultText}`;
}

/** Whether `version` is older than the release `fixed`. `1.17.8-rc.1` is older than `1.17.8`. Text that is not a version is older than nothing. */
function isBelow(version: string, fixed: string): boolean {
  const [, numbers = '', candidate] = /^(\d+\.\d+\.\d+)([-~]rc)?/.exec(version) ?? [];
  if (numbers === '') return false;
  const has = numbers.split('.').map(Number);
  const needs = fixed.split('.').map(Number);
  const at = has.findIndex((number, i) => number !== needs[i]);
  if (at === -1) return candidate !== undefined;
  return (has[at] ?? 0) < (needs[at] ?? 0);
}
