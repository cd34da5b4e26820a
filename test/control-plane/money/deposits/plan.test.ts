// What happens next to a deposit, by its status, its transfers and the time of its chain; and whether nodes confirm what is credited.
import { describe, expect, test } from 'vitest';
import { doubtAbout, type Nodes } from '../../../../control-plane/money/deposits/confirm.ts';
import { creditedState, isOpen, type Plan, planOf, sumOf } from '../../../../control-plane/money/deposits/plan.ts';
import type { ChainReader, FoundTransfer } from '../../../../control-plane/money/deposits/reader.ts';
import { RpcError } from '../../../../control-plane/money/deposits/rpc.ts';
import type { Deposit } from '../../../../control-plane/money/deposits/store.ts';
import type { Transfer } from '../../../../control-plane/money/deposits/transfers-store.ts';
import { DEPOSIT_STATES, type DepositState } from '../../../../shared/states.ts';

const EXPIRES_MS = 1_000;
const DEPOSIT: Deposit = {
  id: 'd',
  org_id: 'o',
  status: 'created',
  chain: 'base',
  asset: 'usdc',
  family: 'evm',
  amount_cents: 2_500,
  due_units: 25n,
  address: '0x1',
  position: 0,
  tx_hash: '0xold',
  credited_units: null,
  credited_cents: null,
  note: null,
  created_ms: 0,
  expires_ms: EXPIRES_MS,
  watched_until_ms: 9_000,
  due_ms: null,
};
const transfer = (id: string, patch: Partial<Transfer> = {}): Transfer => ({
  id,
  deposit_id: 'd',
  chain: 'base',
  tx_hash: `0x${id}`,
  log_index: 0,
  block_number: 10,
  block_hash: 'h',
  block_ms: EXPIRES_MS,
  from_address: '0xf',
  asset: 'usdc',
  units: 25n,
  status: 'seen',
  is_counted: false,
  booking: null,
  ...patch,
});
const FINAL = { status: 'final' as const };

interface Given extends Partial<Deposit> {
  head?: number;
  finalMs?: number;
  tolerance?: bigint;
}
function plan(
  status: DepositState,
  transfers: Transfer[] = [],
  { head = 10, finalMs = EXPIRES_MS, tolerance = 0n, ...patch }: Given = {},
): Plan {
  return planOf({
    deposit: { ...DEPOSIT, status, ...patch },
    transfers,
    chain: { head_number: head, final_ms: finalMs },
    toleranceUnits: tolerance,
  });
}
const wait: Plan = { kind: 'wait' };
const moves = (to: DepositState, txHash: string | null): Plan => ({ kind: 'move', to, txHash });

describe('a deposit without a transfer', () => {
  test('waits until a final block is later than its end', () => {
    expect(plan('created')).toEqual(wait);
    expect(plan('created', [], { finalMs: EXPIRES_MS + 1 })).toEqual(moves('expired', null));
    expect(planOf({ deposit: DEPOSIT, transfers: [], chain: undefined, toleranceUnits: 0n })).toEqual(wait);
  });

  test('goes back if a reorganisation has taken what was there', () => {
    const gone = [transfer('a', { status: 'orphaned' })];
    expect(plan('detected', gone)).toEqual(moves('created', null));
    expect(plan('confirming', gone)).toEqual(moves('created', null));
    expect(plan('confirming', gone, { finalMs: EXPIRES_MS + 1 })).toEqual(moves('expired', null));
  });
});

describe('a deposit with a transfer in time', () => {
  test('is detected, and confirming once another block is on top of it', () => {
    expect(plan('created', [transfer('a')])).toEqual(moves('detected', '0xa'));
    expect(plan('detected', [transfer('a')])).toEqual(wait);
    expect(plan('detected', [transfer('a')], { head: 11 })).toEqual(moves('confirming', '0xa'));
  });

  test('is settled when all of it is final, and it is enough or the time is over', () => {
    const half = (id: string, patch = {}): Transfer => transfer(id, { units: 12n, ...FINAL, ...patch });
    expect(plan('confirming', [transfer('a')])).toEqual(wait);
    expect(plan('confirming', [transfer('a', FINAL)])).toEqual({ kind: 'settle', transfers: [transfer('a', FINAL)] });
    expect(plan('confirming', [half('a')])).toEqual(wait);
    expect(plan('confirming', [half('a')], { finalMs: EXPIRES_MS + 1 })).toMatchObject({ kind: 'settle' });
    expect(plan('confirming', [half('a'), half('b')])).toEqual(wait);
    expect(plan('confirming', [half('a'), half('b')], { tolerance: 1n })).toMatchObject({ kind: 'settle' });
    expect(plan('confirming', [half('a'), half('b', { status: 'seen' })], { tolerance: 1n })).toEqual(wait);
  });

  test('is settled with what is final if that is enough, whatever else was seen', () => {
    const [paid, more] = [transfer('a', FINAL), transfer('c', { ...FINAL, units: 1n })];
    const dust = transfer('b', { units: 1n, block_number: 11 });
    expect(plan('confirming', [paid, dust])).toEqual({ kind: 'settle', transfers: [paid] });
    expect(plan('confirming', [dust, paid, more])).toEqual({ kind: 'settle', transfers: [paid, more] });
    expect(plan('confirming', [transfer('a', { ...FINAL, units: 24n }), dust])).toEqual(wait);
    expect(plan('confirming', [dust], { tolerance: 25n })).toEqual(wait);
    // The time is over, and one transfer in time is not final yet.
    expect(plan('confirming', [more, dust], { finalMs: EXPIRES_MS + 1 })).toEqual(wait);
  });
});

describe('a final transfer that cannot be credited', () => {
  test.each<[string, DepositState, Partial<Transfer>]>([
    ['comes too late', 'created', { block_ms: EXPIRES_MS + 1 }],
    ['is another token', 'confirming', { asset: 'usdt' }],
    ['is on another chain', 'detected', { chain: 'ethereum' }],
    ['comes too late after the credit', 'credited', { block_ms: EXPIRES_MS + 1 }],
    ['comes too late after the settlement', 'settled', { block_ms: EXPIRES_MS + 1 }],
    ['is another token after the credit', 'credited_overpaid', { asset: 'usdt' }],
    ['comes after the end', 'expired', {}],
    ['comes after the operator has cancelled the deposit', 'failed', {}],
    ['comes after another sender was sanctioned', 'failed_screening', {}],
    ['comes after a late one', 'expired_received', {}],
  ])('goes into suspense if it %s', (_why, status, patch) => {
    const stray = transfer('a', { ...FINAL, ...patch });
    expect(plan(status, [stray])).toEqual({ kind: 'suspend', transfers: [stray] });
    // Not while it may still go with its block, not twice, and not if it was counted.
    for (const other of [
      { status: 'seen' },
      { booking: 'suspense' },
      { is_counted: true },
      { status: 'orphaned' },
    ] as const)
      expect(plan(status, [{ ...stray, ...other }]).kind).not.toBe('suspend');
  });
});

describe('a deposit that was credited', () => {
  const credited = transfer('a', { ...FINAL, is_counted: true, booking: 'wallet' });
  const fresh = (id: string, patch: Partial<Transfer> = {}): Transfer => transfer(id, { ...FINAL, ...patch });

  test.each(['credited', 'credited_underpaid', 'credited_overpaid'] as const)(
    'as %s is credited with each transfer in time once it is final',
    (status) => {
      expect(plan(status, [credited, transfer('b')])).toEqual(wait);
      expect(plan(status, [credited, fresh('b'), transfer('c')])).toEqual({ kind: 'settle', transfers: [fresh('b')] });
      const counted = fresh('b', { is_counted: true });
      expect(plan(status, [credited, counted])).toEqual({ kind: 'screen', transfers: [counted] });
      expect(plan(status, [credited, counted, fresh('c')])).toEqual({ kind: 'settle', transfers: [fresh('c')] });
    },
  );

  test('is planned with a few looks at each transfer, however many it has', () => {
    let reads = 0;
    const many = Array.from({ length: 1_000 }, (_, i): Transfer => {
      const { booking, ...rest } = transfer(`t${i}`, { ...FINAL, booking: i % 2 === 0 ? 'wallet' : null });
      return {
        ...rest,
        get booking() {
          reads += 1;
          return booking;
        },
      };
    });
    expect(plan('credited', many)).toMatchObject({ kind: 'settle', transfers: { length: 500 } });
    expect(reads).toBeLessThan(10 * many.length);
  });

  test('is not credited by itself with a transaction that it was credited with in another block', () => {
    const again = fresh('b', { tx_hash: credited.tx_hash, log_index: 1, block_hash: 'i' });
    expect(plan('credited', [credited, again])).toEqual({ kind: 'suspend', transfers: [again] });
    const beside = { ...again, block_hash: credited.block_hash };
    expect(plan('credited', [credited, beside])).toEqual({ kind: 'settle', transfers: [beside] });
    const inSuspense = { ...credited, booking: 'suspense' as const };
    expect(plan('credited', [inSuspense, again])).toEqual({ kind: 'settle', transfers: [again] });
  });

  test('has the senders of further transfers checked one by one', () => {
    const more = (id: string, from: string): Transfer => fresh(id, { is_counted: true, from_address: from });
    const [first, other, second] = [more('b', '0xf'), more('c', '0xg'), more('d', '0xf')];
    expect(plan('credited', [credited, first, other, second])).toEqual({ kind: 'screen', transfers: [first, second] });
  });

  test('takes further transfers only after the first credit', () => {
    const counted = fresh('a', { is_counted: true });
    expect(plan('settled', [counted, fresh('b')])).toEqual(moves('screening', '0xold'));
    for (const status of ['screening', 'held_screening'] as const)
      expect(plan(status, [counted, fresh('b')])).toEqual({ kind: 'screen', transfers: [counted] });
  });
});

describe('a deposit that has lost all that counted by a rewind', () => {
  const gone = transfer('a', { status: 'orphaned' });
  const again = transfer('b', FINAL);

  test('is held until the chain has a transfer in time again', () => {
    expect(plan('settled', [gone])).toEqual(moves('screening', '0xold'));
    expect(plan('screening', [gone])).toEqual(moves('held_screening', '0xold'));
    expect(plan('held_screening', [gone, transfer('c')])).toEqual(wait);
    for (const status of ['screening', 'held_screening'] as const)
      expect(plan(status, [gone, again])).toEqual({ kind: 'settle', transfers: [again] });
  });
});

describe('a deposit that is not open any more', () => {
  const counted = transfer('a', { ...FINAL, is_counted: true });
  const other = transfer('b', { ...FINAL, booking: 'suspense' });

  test('is screened by the senders of what was counted', () => {
    expect(plan('settled', [counted])).toEqual(moves('screening', '0xold'));
    for (const status of ['screening', 'held_screening'] as const)
      expect(plan(status, [counted, other])).toEqual({ kind: 'screen', transfers: [counted] });
  });

  test('that has expired has received something once that is booked', () => {
    expect(plan('expired')).toEqual(wait);
    expect(plan('expired', [other])).toEqual(moves('expired_received', '0xb'));
  });

  test('waits in every other status', () => {
    const all = Object.keys(DEPOSIT_STATES) as DepositState[];
    const open = all.filter((status) => isOpen(status));
    expect(open).toEqual(['created', 'detected', 'confirming']);
    const busy: DepositState[] = [...open, 'settled', 'screening', 'held_screening', 'expired'];
    for (const status of all.filter((each) => !busy.includes(each))) expect(plan(status, [other])).toEqual(wait);
  });
});

test('a credit is exact within the tolerance, on both sides', () => {
  const state = (units: bigint, tolerance = 2n): string => creditedState(DEPOSIT, units, tolerance);
  expect([22n, 23n, 25n, 27n, 28n].map((units) => state(units))).toEqual([
    'credited_underpaid',
    'credited',
    'credited',
    'credited',
    'credited_overpaid',
  ]);
  expect([24n, 25n, 26n].map((units) => state(units, 0n))).toEqual([
    'credited_underpaid',
    'credited',
    'credited_overpaid',
  ]);
  expect(sumOf([{ units: 2n }, { units: 3n }])).toBe(5n);
});

describe('the nodes that are asked before a credit', () => {
  const SEEN: FoundTransfer = {
    txHash: '0xa',
    logIndex: 0,
    block: { number: 10, hash: 'h', ms: 0 },
    from: '0xf',
    to: '0x1',
    asset: 'usdc',
    units: 25n,
  };
  type Told = FoundTransfer[] | undefined | Error;
  const node = (told: Told): ChainReader =>
    ({
      transfersOf: async () => {
        if (told instanceof Error) throw told;
        return told;
      },
    }) as unknown as ChainReader;
  const doubt = (first: Told, second: Told | 'none' = 'none', fromUnits = 25n): Promise<string | undefined> => {
    const nodes: Nodes = { first: node(first), second: second === 'none' ? null : { reader: node(second), fromUnits } };
    return doubtAbout(DEPOSIT, [transfer('a', FINAL)], () => nodes);
  };

  test('confirm a transfer that both have seen in the same block with the same amount', async () => {
    expect(await doubt([SEEN])).toBeUndefined();
    expect(await doubt([{ ...SEEN, logIndex: 1 }, SEEN], [SEEN])).toBeUndefined();
  });

  test.each<[string, Partial<FoundTransfer>]>([
    ['another place', { logIndex: 1 }],
    ['another block', { block: { number: 10, hash: 'i', ms: 0 } }],
    ['another token', { asset: 'usdt' }],
    ['another amount', { units: 24n }],
  ])('doubt a transfer with %s', async (_what, patch) => {
    const words = 'has another result of the transaction 0xa';
    expect(await doubt([{ ...SEEN, ...patch }])).toBe(`the node ${words}`);
    expect(await doubt([SEEN], [{ ...SEEN, ...patch }])).toBe(`the second node ${words}`);
  });

  test('doubt a transaction that they do not know, and an answer that does not come', async () => {
    expect(await doubt(undefined)).toBe('the node does not know the transaction 0xa');
    expect(await doubt([])).toBe('the node has another result of the transaction 0xa');
    expect(await doubt(new RpcError(-1, 'busy'))).toBe('the node gave no answer: busy');
    await expect(doubt(new Error('a bug'))).rejects.toThrow('a bug');
    expect(await doubtAbout(DEPOSIT, [], () => undefined)).toBe('base is not in the configuration any more');
  });

  test('are asked once for each transaction, and doubt it if one of its transfers is missing', async () => {
    const asked: string[] = [];
    const first = {
      transfersOf: async (txHash: string) => {
        asked.push(txHash);
        return [SEEN, { ...SEEN, logIndex: 1 }];
      },
    } as unknown as ChainReader;
    const nodes: Nodes = { first, second: null };
    const paid = (...places: number[]): Transfer[] =>
      places.map((place) => transfer(`a${place}`, { ...FINAL, tx_hash: '0xa', log_index: place }));
    const doubtOf = (transfers: Transfer[]): Promise<string | undefined> => doubtAbout(DEPOSIT, transfers, () => nodes);
    expect(await doubtOf(paid(0, 1))).toBeUndefined();
    expect(asked).toEqual(['0xa']);
    expect(await doubtOf(paid(0, 1, 2))).toBe('the node has another result of the transaction 0xa');
    expect(await doubtOf([...paid(0), transfer('b', FINAL)])).toBeUndefined();
    expect(asked).toEqual(['0xa', '0xa', '0xa', '0xb']);
  });

  test('are two only from an amount on', async () => {
    expect(await doubt([SEEN], [], 26n)).toBeUndefined();
    expect(await doubt([SEEN], [], 25n)).toBe('the second node has another result of the transaction 0xa');
  });
});
