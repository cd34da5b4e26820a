// The verdict about the senders of many transfers.
import { expect, test } from 'vitest';
import { type Screen, screenAll } from '../../../../control-plane/money/deposits/screening.ts';

// A stranger can send thousands of tiny transfers to a deposit. A check of each would flood the node.
test('each sender is checked once, however many transfers it has sent', async () => {
  const screened: string[] = [];
  const screen: Screen = async (chain, address) => {
    screened.push(`${chain} ${address}`);
    return 'clear';
  };
  const senders = ['a', 'a,b', 'b'].map((address) => ({ chain: 'solana', address }) as const);
  expect(await screenAll(screen, [...senders, { chain: 'base', address: 'a' }])).toBe('clear');
  expect(screened).toEqual(['solana a', 'solana b', 'base a']);
});
