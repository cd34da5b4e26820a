// Chooses the offering for a launch, explains a refusal, and chooses the machines of a reservation contract.
import type { Narrowing } from '../supply/narrowing.ts';
import type { Candidate, CapacityRequest } from '../supply/offerings.ts';
import { requirementsOf } from '../supply/requirements.ts';
import type { Capacity } from '../supply/slots.ts';

/**
 * The best offering first: the cheapest; then the machine with the fewest GPUs left over, so that whole machines stay free for large
 * launches; then the lowest id, so that the result is always the same.
 */
export function rank(request: { gpuCount: number }, offerings: readonly Candidate[]): Candidate[] {
  const leftOver = (offering: Candidate): number => offering.gpu_free - request.gpuCount;
  return offerings.toSorted(
    (a, b) =>
      compare(a.price_ucents_per_hour, b.price_ucents_per_hour) ||
      compare(leftOver(a), leftOver(b)) ||
      compare(a.id, b.id),
  );
}

/** One sentence for the operation's `error.detail`: how many offerings each condition left, in the order in which they were applied. */
export function explain(request: CapacityRequest, narrowing: Narrowing): string {
  const steps = [
    [narrowing.listed, 'listed'],
    [narrowing.ofType, `of type ${request.gpuType}${wordsOfChoice(request)}`],
    [narrowing.bigEnough, `with at least ${request.gpuCount} GPU${request.gpuCount === 1 ? '' : 's'}`],
    ...(request.minVramGb === 0
      ? []
      : [[narrowing.withVram, `with at least ${request.minVramGb} GB of VRAM`] as const]),
    ...requirementsOf(request).map(({ words }, index) => [narrowing.required[index] ?? 0, words] as const),
    ...stayingStep(request, narrowing),
    [narrowing.free, 'with enough of them free'],
    ...diskStep(request, narrowing),
    ...(request.trustedOnly ? [[narrowing.trusted, 'on machines that the operator trusts'] as const] : []),
    [narrowing.affordable, 'within the price cap and not tried before'],
  ] as const;
  const counts: string[] = [];
  for (const [count, what] of steps) {
    counts.push(`${count} ${what}`);
    if (count === 0) break;
  }
  return `No offering fits. Offerings left after each condition: ${counts.join(', ')}. Change what the last condition asks for, or try again later.`;
}

/** The type was chosen when the launch was accepted, so the counts are about that type. */
function wordsOfChoice({ requirements: { gpu_types: types = [] } = {} }: CapacityRequest): string {
  const others = new Set(types);
  return others.size < 2 ? '' : ` (chosen from ${[...others].join(', ')})`;
}

/** Few suppliers say until when a host can be rented, so a launch is told about that only if it excludes a host. */
function stayingStep({ endsMs }: CapacityRequest, { required, withVram, staying }: Narrowing): [number, string][] {
  if (staying === (required.at(-1) ?? withVram)) return [];
  const until = endsMs === null ? 'without an end' : 'until the launch has ended';
  return [[staying, `that are offered ${until} (see auto_terminate_hours)`]];
}

/** A launch without a size needs little disk, so it is told about that only if some host has too little. */
function diskStep({ diskGb, roomGb }: CapacityRequest, { free, withDisk }: Narrowing): [number, string][] {
  if (diskGb !== null) return [[withDisk, `with ${diskGb} GB of disk`]];
  return roomGb === undefined || withDisk === free ? [] : [[withDisk, `with at least ${roomGb} GB of disk left`]];
}

/**
 * Chooses `count` GPUs on as few machines as possible, so that the contract can serve launches with several GPUs on one machine. The last
 * part goes to the smallest machine that has enough, so that large machines stay whole. Undefined if there are too few GPUs.
 */
export function fewestMachines(
  capacities: readonly Capacity[],
  count: number,
): { machineId: string; count: number }[] | undefined {
  const bySize = capacities.toSorted((a, b) => a.gpu_free - b.gpu_free || compare(a.machine_id, b.machine_id));
  const parts: { machineId: string; count: number }[] = [];
  let missing = count;
  while (missing > 0) {
    const enough = bySize.find((machine) => machine.gpu_free >= missing);
    const next = enough ?? bySize.pop();
    if (next === undefined) return undefined;
    const part = Math.min(next.gpu_free, missing);
    parts.push({ machineId: next.machine_id, count: part });
    missing -= part;
  }
  return parts;
}

function compare<T extends bigint | number | string>(a: T, b: T): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
