// Reads the receipt of a request, which has its cost. The receipt is closed soon after the answer.
import type { Receipt } from '../../../../shared/api/receipt.ts';
import { get } from '../core/api.ts';

const TRIES = 8;
const WAIT_MS = 400;

/** The receipt that the header of an answer names. @throws ApiError */
export async function receiptOf(id: string): Promise<Receipt> {
  let receipt = await get<Receipt>(`/v1/receipts/${id}`);
  for (let tries = 1; receipt.state === 'open' && tries < TRIES; tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
    receipt = await get<Receipt>(`/v1/receipts/${id}`);
  }
  return receipt;
}

/** The cost with all digits of the ledger, like `$0.00004125`; `not known yet` while the receipt is open. */
export function costText({ cost, state }: Receipt): string {
  return state === 'open' ? 'not known yet' : `$${cost}`;
}
