// Reads the GPUs of this machine from nvidia-smi with query flags. Its screen text changes with every driver and is never read.
import { readFile } from 'node:fs/promises';
import { GPUS_PER_MACHINE_MAX } from '../../shared/limits.ts';
import type { GpuFacts } from '../../shared/protocol/inventory.ts';
import { run } from '../host/run.ts';

/** A process that computes on a GPU. */
export interface ComputeProcess {
  gpu_uuid: string;
  pid: number;
}

export type GpuCard = Omit<GpuFacts, 'foreign_use'>;

/** If the driver hangs, nvidia-smi hangs for ever. */
const QUERY_MS_MAX = 20_000;

/**
 * All GPUs, and whether a foreign process uses them. A process counts as ours if its cgroup names one of `containerIds`. A machine
 * without nvidia-smi has no GPUs; an nvidia-smi that fails is an error.
 */
export async function readGpus(nvidiaSmi: string, containerIds: readonly string[]): Promise<GpuFacts[]> {
  const cardsText = await query(nvidiaSmi, '--query-gpu=uuid,index,name,memory.total,driver_version,pci.bus_id');
  if (cardsText === undefined) return [];
  const processesText = (await query(nvidiaSmi, '--query-compute-apps=gpu_uuid,pid')) ?? '';
  const foreign = new Set<string>();
  for (const process of parseComputeProcesses(processesText)) {
    if (!(await isOurs(process.pid, containerIds))) foreign.add(process.gpu_uuid);
  }
  return parseGpuCards(cardsText).map((card) => ({ ...card, foreign_use: foreign.has(card.uuid) }));
}

/** Lines of `uuid, index, name, memory MiB, driver, bus id`. Lines without a uuid or an index are skipped: such a card cannot be rented. */
export function parseGpuCards(text: string): GpuCard[] {
  const cards: GpuCard[] = [];
  for (const [uuid, index, name, memoryMib, driver, busId] of csvRows(text)) {
    const parsedIndex = wholeNumber(index);
    if (!isKnown(uuid) || parsedIndex === undefined) continue;
    cards.push({
      uuid,
      index: parsedIndex,
      name: isKnown(name) ? name : 'unknown',
      memory_mib: wholeNumber(memoryMib) ?? 0,
      driver_version: isKnown(driver) ? driver : '',
      bus_id: isKnown(busId) ? busId : '',
    });
  }
  return cards.slice(0, GPUS_PER_MACHINE_MAX);
}

/** Lines of `gpu uuid, pid`; "No running processes found" and `[N/A]` are no processes. */
export function parseComputeProcesses(text: string): ComputeProcess[] {
  const processes: ComputeProcess[] = [];
  for (const [uuid, pid] of csvRows(text)) {
    const parsedPid = wholeNumber(pid);
    if (isKnown(uuid) && parsedPid !== undefined) processes.push({ gpu_uuid: uuid, pid: parsedPid });
  }
  return processes;
}

/** The cells of each line of the answer. Rejects if nvidia-smi does not know the query. */
export async function queryRows(nvidiaSmi: string, flag: string): Promise<string[][]> {
  return csvRows((await query(nvidiaSmi, flag)) ?? '');
}

async function query(nvidiaSmi: string, flag: string): Promise<string | undefined> {
  const result = await run([nvidiaSmi, flag, '--format=csv,noheader,nounits'], { timeoutMs: QUERY_MS_MAX }).catch(
    (error: unknown) => {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
      throw error;
    },
  );
  if (result === undefined) return undefined;
  if (result.code === 0) return result.stdout;
  const said = (result.stderr || result.stdout).trim().slice(0, 300);
  throw new Error(`${nvidiaSmi} ${flag} ended with ${result.code ?? result.signal ?? 'nothing'}: ${said}`);
}

/** True for a process of our containers, and for one that has ended meanwhile: it does not use the card any more. */
async function isOurs(pid: number, containerIds: readonly string[]): Promise<boolean> {
  const cgroup = await readFile(`/proc/${pid}/cgroup`, 'utf8').catch(() => undefined);
  return cgroup === undefined || containerIds.some((id) => cgroup.includes(id));
}

function csvRows(text: string): string[][] {
  return text
    .split('\n')
    .filter((line) => line.includes(','))
    .map((line) => line.split(',').map((cell) => cell.trim()));
}

function isKnown(cell: string | undefined): cell is string {
  return cell !== undefined && cell !== '' && !cell.startsWith('[');
}

function wholeNumber(cell: string | undefined): number | undefined {
  return cell !== undefined && /^\d{1,12}$/.test(cell) ? Number(cell) : undefined;
}
