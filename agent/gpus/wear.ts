// Reads the faults of each card's memory: uncorrected errors, and bad cells that only a reset replaces.
import { queryRows } from './nvidia-smi.ts';

const RETIRED = '--query-gpu=uuid,ecc.errors.uncorrected.volatile.total,retired_pages.pending';
const REMAPPED = '--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure';

/**
 * The fault in words, by UUID, of cards that must not get a new rental. A query that the driver does not know, and a value that the card
 * does not have (`[N/A]`: most consumer cards), are no fault. Lifetime counters are ignored: those errors were repaired.
 */
export async function readWear(nvidiaSmi: string): Promise<Map<string, string>> {
  const retired = await queryRows(nvidiaSmi, RETIRED).catch(() => []);
  const remapped = await queryRows(nvidiaSmi, REMAPPED).catch(() => []);
  return parseWear(retired, remapped);
}

/** Parses the rows of the two queries. */
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

/** Some drivers answer Yes, others 1. */
function isYes(cell: string): boolean {
  return /^(yes|1)$/i.test(cell);
}
