// How the transfers of a kind appear on the bill of a customer. Each room states it for the kinds with which it changes wallets.
import type { BillSection } from '../../../shared/api/bill.ts';

export interface BilledAs {
  /** The section may depend on the evidence of the transfer. */
  section: BillSection | ((evidence: string | null) => BillSection);
  /**
   * What one line sums up. `subject`: all transfers of an instance or job with the same evidence. `model`: all transfers of a model, which is
   * their evidence. `batch`: transfers that were posted together.
   */
  by: 'subject' | 'model' | 'batch';
}

/** The key is the kind of the transfer. */
export type Billed = Readonly<Record<string, BilledAs>>;
