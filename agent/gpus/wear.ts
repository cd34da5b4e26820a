// What a card says about its memory: errors that could not be corrected, and cells that only a reset replaces.
import { queryRows } from './nvidia-smi.ts';

const RETIRED = '--query-gpu=uuid,ecc.errors.uncorrected.volatile.total,retired_pages.pending';
const REMAPPED = '--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure';

/**
 * In words, by UUID, where the card is not to be given to somebody new. A question that the driver does not know, and an answer that the card does
 * not have (`[N/A]`: most consumer cards), speak for nothing. What was counted over the card's whole life does not either: it was mended.
 */
export async function readWear(nvidiaSmi: string): Promise<Map<string, string>> {
  const retired = await queryRows(nvidiaSmi, RETIRED).catch(() => []);
  const remapped = await queryRows(nvidiaSmi, REMAPPED).catch(() => []);
  return parseWear(retired, remapped);
}

/** Rows as of the two queries. */
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

/** Drivers say Yes or 1. */
function isYes(cell: string): boolean {
  return /^(yes|1)$/i.test(cell);
}
