// The rented time of each GPU of a machine, and the part of that time that was charged.
import type { MachineRental } from '../../../../shared/api/community.ts';

interface Span {
  fromMs: number;
  untilMs: number;
}

interface Piece extends Span {
  kind: 'billed' | 'free' | 'outage';
}

export interface GpuTime {
  gpuUuid: string;
  pieces: Piece[];
  /** Milliseconds of the span that were charged. */
  chargedMs: number;
}

/** The time of each GPU. The GPUs of `gpuUuids` come first, in their order; GPUs that only rentals have follow. */
export function timeOfGpus(gpuUuids: readonly string[], rentals: readonly MachineRental[], span: Span): GpuTime[] {
  const seen = rentals.filter((rental) => endOf(rental.until, span) > span.fromMs);
  const all = [...new Set([...gpuUuids, ...seen.flatMap((rental) => rental.gpu_uuids)])];
  return all.map((gpuUuid) => {
    const own = seen.filter((rental) => rental.gpu_uuids.includes(gpuUuid));
    const pieces = own.flatMap((rental) => piecesOf(rental, span));
    const chargedMs = pieces
      .filter(({ kind }) => kind === 'billed')
      .reduce((sum, { fromMs, untilMs }) => sum + Math.max(0, untilMs - Math.max(fromMs, span.fromMs)), 0);
    return { gpuUuid, pieces, chargedMs };
  });
}

/**
 * The pieces of one rental. Its time before the first charge is free. Time between two charges is an outage. If the rental has not ended, time
 * after the last charge is an outage too.
 * Example: placed at 9:00, charged 9:02 to 11:00 and from 11:20 on: free 9:00 to 9:02, outage 11:00 to 11:20.
 */
function piecesOf({ from, until, charged }: MachineRental, span: Span): Piece[] {
  const pieces: Piece[] = [];
  let reachedMs = Date.parse(from);
  for (const [at, part] of charged.entries()) {
    const fromMs = Date.parse(part.from);
    if (fromMs > reachedMs) pieces.push({ kind: at === 0 ? 'free' : 'outage', fromMs: reachedMs, untilMs: fromMs });
    reachedMs = endOf(part.until, span);
    pieces.push({ kind: 'billed', fromMs, untilMs: reachedMs });
  }
  const isOver = until !== null && charged.length > 0;
  const endMs = endOf(until, span);
  if (!isOver && endMs > reachedMs)
    pieces.push({ kind: charged.length === 0 ? 'free' : 'outage', fromMs: reachedMs, untilMs: endMs });
  return pieces;
}

const endOf = (until: string | null, span: Span): number => (until === null ? span.untilMs : Date.parse(until));
