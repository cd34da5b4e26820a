// The deposits that each test of a file has to itself, on a local chain of the file: its books are proved and its world is closed after it.
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import type { ChainSettings } from '../../../../control-plane/money/deposits/settings.ts';
import type { DepositChain } from '../../../../shared/api/deposit.ts';
import { type EvmChain, startEvmChain } from '../../../kit/evm-chain.ts';
import { openOperator, type Operator } from '../../../kit/operator.ts';
import { type DepositWorld, MINUTE_MS, openDepositWorld, settingsFor } from './deposit-world.ts';

export let chain: EvmChain;
export let deposits: DepositWorld;
export let operator: Operator;

const START_MS = Date.UTC(2026, 0, 1);
/** A time of the chain, in minutes after the world is opened. */
export const at = (minutes: number): number => START_MS + minutes * MINUTE_MS;

export function openDepositsForEachTest(): void {
  beforeAll(async () => {
    chain = await startEvmChain(at(-10));
  });
  afterAll(() => chain.close());
  beforeEach(async () => {
    await chain.reset();
    await chain.finalize(at(-5));
    await open();
  });
  afterEach(async () => {
    await deposits.world.verify();
    await deposits.world.close();
  });
}

/** The same with other settings of the chain. */
export async function reopen(...changes: [changes: Partial<ChainSettings>, name?: DepositChain]): Promise<void> {
  await deposits.world.close();
  await open(...changes);
}

async function open(...changes: [changes?: Partial<ChainSettings>, name?: DepositChain]): Promise<void> {
  deposits = await openDepositWorld(settingsFor(chain, ...changes));
  operator = openOperator(deposits.world);
  await deposits.settle();
}

/** The operator decides about a deposit. */
export const decide = (id: string, verb: 'credit' | 'reject', reason = 'asked the customer') =>
  operator.ask('POST', `/admin/deposits/${id}/${verb}`, { reason });

/** The operator notes that what came with a transaction was sent back: with the last one that is in suspense, or else with the first of all. */
export async function noteReturned(id: string, txHash?: string): Promise<unknown> {
  const shown = await operator.ask('GET', `/admin/deposits/${id}`);
  const transfers = shown['transfers'] as { tx_hash: string; booked: string | null }[];
  const waits = transfers.findLast(({ booked }) => booked === 'suspense') ?? transfers[0];
  const payload = { tx_hash: txHash ?? waits?.tx_hash, reason: 'sent back' };
  return operator.ask('POST', `/admin/deposits/${id}/returned`, payload);
}

/** The deposits that wait for the operator. */
export const waiting = async (): Promise<unknown[]> =>
  ((await operator.ask('GET', '/admin/deposits?waiting=true'))['data'] as { deposit_id: string }[]).map(
    ({ deposit_id: id }) => id,
  );

/** What a deposit has in suspense, in dollars. */
export const suspended = async (id: string): Promise<unknown> =>
  ((await operator.ask('GET', `/admin/deposits/${id}`))['deposit'] as Record<string, unknown>)['in_suspense'];
