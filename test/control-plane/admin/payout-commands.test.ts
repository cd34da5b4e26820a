// The operator's commands for payouts, from the command line to the ledger.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { payable, revenue } from '../../../control-plane/money/ledger/accounts.ts';
import { runCommand } from '../../kit/operator-commands.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOME = '0x52908400098527886E0F7030069857D2E4169EE7';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.clock.advance(3_600_000);
  await world.verify();
  await world.close();
});

const run = (...words: string[]): Promise<string> => runCommand(world, ['admin', 'payout', ...words]);
const rows = async (...words: string[]): Promise<Record<string, unknown>[]> =>
  (JSON.parse(await run(...words, '--json')) as { data: Record<string, unknown>[] }).data;

/** A supplier that may be paid 30 dollars. */
async function owed(): Promise<string> {
  const { supplierId, orgId } = await world.machine();
  await world.db.tx('test.owed', async (tx) => {
    await tx.lock('supplier', supplierId);
    const payee = { supplierId, orgId };
    await world.rooms.payouts.destinations.change(tx, payee, { chain: 'base', address: HOME });
    const legs = { debit: revenue, credit: payable(supplierId), amountUcents: 3_000_000_000n };
    const about = { id: supplierId, kind: 'test', subjectId: 'i-1', effectiveMs: 1 };
    await world.rooms.ledger.post(tx, supplierId, [{ ...legs, ...about }]);
  });
  await world.clock.advance(1);
  return supplierId;
}

test('payouts are listed, exported, and entered as sent or failed', async () => {
  const suppliers = [await owed(), await owed()];
  await world.rooms.payouts.makeDue(new AbortController().signal);
  const due = await rows('list', '--state', 'due');
  expect(new Set(due.map((row) => row['supplier_id']))).toEqual(new Set(suppliers));
  const exported = await rows('export', '--batch', 'monday');
  expect(exported).toMatchObject([
    { chain: 'base', asset: 'usdc', address: HOME, amount: '30.00' },
    { chain: 'base', asset: 'usdc', address: HOME, amount: '30.00' },
  ]);
  expect(await rows('export', '--batch', 'monday')).toEqual(exported);
  const [first, second] = exported.map((row) => String(row['payout_id']));
  expect(await run('sent', first ?? '', '--reference', '0x5f1c')).toContain('0x5f1c');
  expect(await run('failed', second ?? '', '--reason', 'no gas')).toContain('no gas');
  expect(await rows('list', '--state', 'due')).toEqual([]);
  expect(await rows('list', '--state', 'paid')).toMatchObject([{ payout_id: first, batch: 'monday' }]);
  await expect(run('failed', first ?? '', '--reason', 'x')).rejects.toThrow('was paid with 0x5f1c already');
});

test.each([
  [['export'], '--batch'],
  [['export', '--batch', ''], 'batch'],
  [['export', '--batch', 'b'.repeat(65)], 'batch must have at most 64 characters'],
  [['sent', 'p'], '--reference'],
  [['sent', 'p', '--reference', 'r'.repeat(256)], 'reference must have at most 255 characters'],
  [['failed', 'p'], '--reason'],
  [['failed', 'p', '--reason', 'x'], 'There is no payout p.'],
  [['list', '--state', 'lost'], 'state'],
])('%j is refused with its rule', async (words, rule) => {
  await expect(run(...words)).rejects.toThrow(rule);
});
