// Suppliers that are paid in a small world: earnings from nowhere, and where their payouts go.
import { payable, revenue } from '../../control-plane/money/ledger/accounts.ts';
import type { Payee } from '../../control-plane/money/payouts/destinations.ts';
import type { Destinations } from '../../control-plane/money/payouts/plan.ts';
import type { Chain } from '../../shared/api/payout.ts';
import { UCENTS_PER_CENT } from '../../shared/money.ts';
import type { World } from './world.ts';

/** An address that is written in one case, so that its checksum is never verified. */
export const HOME = '0x52908400098527886E0F7030069857D2E4169EE7';

/** Earnings from our revenue, at a moment of their own. A negative amount is a claw-back. */
export async function earnCents(world: World, supplierId: string, count: number): Promise<void> {
  const id = `e${world.clock.now()}-${supplierId}`;
  const [debit, credit] = count > 0 ? [revenue, payable(supplierId)] : [payable(supplierId), revenue];
  const about = { id, kind: 'test', subjectId: 'i-1', effectiveMs: world.clock.now() };
  const amountUcents = BigInt(Math.abs(count)) * UCENTS_PER_CENT;
  await world.db.tx('test.earn', (tx) => world.rooms.ledger.post(tx, id, [{ ...about, debit, credit, amountUcents }]));
  await world.clock.advance(1);
}

/** The call goes over the database of the process, so that its transactions take part in what a test does to it. */
export function nameDestination(
  { core, rooms }: World,
  payee: Payee,
  { address = HOME, chain = 'base' }: { address?: string; chain?: Chain } = {},
): Promise<Destinations> {
  return core.db.tx('test.name', async (tx) => {
    await tx.lock('supplier', payee.supplierId);
    return rooms.payouts.destinations.change(tx, payee, { chain, address });
  });
}
