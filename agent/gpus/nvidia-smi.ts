// Reads what NVIDIA's programs report about this machine: its GPUs, the faults of their memory, and the version of the container toolkit.
// nvidia-smi is called with query flags. Its screen text changes with every driver and is never read.
import { readFile } from 'node:fs/promises';
import { GPUS_PER_MACHINE_MAX } from '../../shared/limits.ts';
import type { GpuFacts } from '../../shared/protocol/inventory.ts';
import { run } from '../host/run.ts';
import { codeOf } from '../../shared/errors.ts';

/** A process that computes on a GPU. */
export interface ComputeProcess {
  gpu_uuid: string;
  pid: number;
}

export type GpuCard = Omit<GpuFacts, 'foreign_use'>;

/** If the driver hangs, nvidia-smi hangs for ever. */
const QUERY_MS_MAX = 20_000;

/**
 * All GPUs, and whether a foreign process uses them. A process counts as ours if its cgroup names one of `containerIds`. The ids are read after the
 * processes, because a container may start while nvidia-smi works for seconds. Undefined on a machine without nvidia-smi.
 * @throws Error if nvidia-smi fails
 */
export async function readGpus(
  nvidiaSmi: string,
  containerIds: () => readonly string[],
): Promise<GpuFacts[] | undefined> {
  const cardsText = await query(nvidiaSmi, '--query-gpu=uuid,index,name,memory.total,driver_version,pci.bus_id');
  if (cardsText === undefined) return undefined;
  const processesText = (await query(nvidiaSmi, '--query-compute-apps=gpu_uuid,pid')) ?? '';
  const ours = containerIds();
  const foreign = new Set<string>();
  for (const process of parseComputeProcesses(processesText)) {
    if (!(await isOurs(process.pid, ours))) foreign.add(process.gpu_uuid);
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

/** Parses lines of `gpu uuid, pid`. Lines such as "No running processes found" or with `[N/A]` are skipped. */
export function parseComputeProcesses(text: string): ComputeProcess[] {
  const processes: ComputeProcess[] = [];
  for (const [uuid, pid] of csvRows(text)) {
    const parsedPid = wholeNumber(pid);
    if (isKnown(uuid) && parsedPid !== undefined) processes.push({ gpu_uuid: uuid, pid: parsedPid });
  }
  return processes;
}

const RETIRED = '--query-gpu=uuid,ecc.errors.uncorrected.volatile.total,retired_pages.pending';
/** One query for both, because each one takes seconds on a host without persistence mode. Drivers before 450 do not know MIG mode. */
const RETIRED_AND_MIG = `${RETIRED},mig.mode.current`;
const REMAPPED = '--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure';

/**
 * Why cards must not get a new rental, in words, by UUID: faults of their memory, and MIG mode. A driver that does not know a query is no fault, and
 * neither is a value that a card does not have (`[N/A]`: most consumer cards). Lifetime counters are ignored, because those errors were repaired.
 * `answers` keeps the last answer to each query. While a query fails, its last answer counts: an nvidia-smi that is late makes no bad card good.
 */
export async function readUnfit(
  nvidiaSmi: string,
  answers = new Map<string, string[][]>(),
): Promise<Map<string, string>> {
  const ask = async (flag: string): Promise<string[][]> => {
    try {
      const rows = await queryRows(nvidiaSmi, flag);
      answers.set(flag, rows);
      return rows;
    } catch (error) {
      const last = answers.get(flag);
      if (last === undefined) throw error;
      return last;
    }
  };
  const cards = await ask(RETIRED_AND_MIG)
    .catch(() => ask(RETIRED))
    .catch(() => []);
  const remapped = await ask(REMAPPED).catch(() => []);
  return new Map([...parseMig(cards), ...parseWear(cards, remapped)]);
}

/** In MIG mode a container computes on the parts of a card that somebody has made, and on none if nobody has. */
export function parseMig(cards: readonly string[][]): Map<string, string> {
  const divided = cards.filter(([, , , mode]) => mode === 'Enabled');
  return new Map(divided.map(([uuid = '']) => [uuid, `MIG mode is on: nvidia-smi -i ${uuid} -mig 0`]));
}

/** Parses the rows of the two queries about memory. */
export function parseWear(retired: readonly string[][], remapped: readonly string[][]): Map<string, string> {
  const wear = new Map<string, string>();
  for (const [uuid = '', errors = '', pending = ''] of retired) {
    if (/^[1-9]\d*$/.test(errors))
      wear.set(uuid, `${errors} memory errors since its last reset could not be corrected`);
    else if (isYes(pending)) wear.set(uuid, 'bad memory pages wait for a reset to be retired');
  }
  for (const [uuid = '', pending = '', failure = ''] of remapped) {
    if (isYes(failure)) wear.set(uuid, 'bad memory rows cannot be replaced any more');
    else if (isYes(pending) && !wear.has(uuid)) wear.set(uuid, 'bad memory rows wait for a reset to be replaced');
  }
  return wear;
}

const ASK_MS_MAX = 10_000;
const VERSION_CHARS_MAX = 64;
/** Programs that can report the toolkit's version. They are tried in this order. */
const PROGRAMS = ['nvidia-ctk', 'nvidia-container-cli'] as const;

/** The version of the container toolkit; empty if no program is installed, or none reports a version. */
export async function readToolkitVersion(programs: readonly string[] = PROGRAMS): Promise<string> {
  for (const program of programs) {
    const answer = await run([program, '--version'], { timeoutMs: ASK_MS_MAX }).catch(() => undefined);
    const version = answer?.code === 0 ? parseToolkitVersion(answer.stdout) : '';
    if (version !== '') return version;
  }
  return '';
}

/** Finds `1.17.8` in a line like `NVIDIA Container Toolkit CLI version 1.17.8` or `cli-version: 1.17.8`; empty if there is none. */
export function parseToolkitVersion(text: string): string {
  return (/\bversion:?\s+v?(\d+\.\d+\.\d+\S*)/.exec(text)?.[1] ?? '').slice(0, VERSION_CHARS_MAX);
}

/** The cells of each line of the answer. Rejects if nvidia-smi does not know the query. */
export async function queryRows(nvidiaSmi: string, flag: string): Promise<string[][]> {
  return csvRows((await query(nvidiaSmi, flag)) ?? '');
}

async function query(nvidiaSmi: string, flag: string): Promise<string | undefined> {
  const result = await run([nvidiaSmi, flag, '--format=csv,noheader,nounits'], { timeoutMs: QUERY_MS_MAX }).catch(
    (error: unknown) => {
      if (codeOf(error) === 'ENOENT') return undefined;
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

/** Some drivers answer Yes, others 1. */
function isYes(cell: string): boolean {
  return /^(yes|1)$/i.test(cell);
}
