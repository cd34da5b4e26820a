// The operator's commands for payouts, from the command line to the ledger.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runCommand } from '../../kit/operator-commands.ts';
import { earnCents, HOME, nameDestination } from '../../kit/payees.ts';
import { openWorld, type World } from '../../kit/world.ts';

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
  const payee = await world.machine();
  await nameDestination(world, payee);
  await earnCents(world, payee.supplierId, 3_000);
  return payee.supplierId;
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
