// Pure: what happens next to a deposit, from its row, its transfers and how far its chain was read.
//
// Example: 25.00 is due until 12:00. 10.00 comes at 11:50 and 15.00 at 11:59, each in a block.
//
//   blocks read up to   final up to   plan
//   11:50               11:40         move to `detected`
//   11:51               11:41         move to `confirming`
//   12:05               11:55         wait: 10.00 is final and counts, 15.00 counts and is not final
//   12:15               12:02         settle 25.00
//
// If 1.00 more comes at 11:59:30, it is final at 12:16. The deposit is credited by then, so the 1.00 is settled, screened and credited by itself.
//
// Only the times of blocks count. If the node is an hour behind, the deposit expires an hour later, after its transfers were seen.
import type { DepositState } from '../../../shared/states.ts';
import type { ChainRow } from './chains-store.ts';
import type { Deposit } from './store.ts';
import type { Transfer } from './transfers-store.ts';

export type Plan =
  | { kind: 'wait' }
  | { kind: 'move'; to: DepositState; txHash: string | null }
  /** These transfers count from now on. Their receipts are checked first. */
  | { kind: 'settle'; transfers: Transfer[] }
  /** The senders of these transfers are checked. If they are clear, the transfers are credited. */
  | { kind: 'screen'; transfers: Transfer[] }
  /** These transfers are final, but the deposit cannot be credited with them. They go into suspense. */
  | { kind: 'suspend'; transfers: Transfer[] };

export interface Facts {
  deposit: Deposit;
  /** The transfers in the order of the chain. */
  transfers: readonly Transfer[];
  /** Undefined if the chain was never read. The time of its final block is null while an account of the deposit is behind. */
  chain: Pick<ChainRow, 'head_number' | 'final_ms'> | undefined;
  toleranceUnits: bigint;
}

export function planOf(facts: Facts): Plan {
  const { deposit, transfers } = facts;
  const { status, tx_hash: txHash } = deposit;
  const alive = transfers.filter((each) => each.status !== 'orphaned');
  const inTime = alive.filter((transfer) => isInTime(deposit, transfer));
  const unbooked = alive.filter((transfer) => transfer.status === 'final' && transfer.booking === null);
  const counted = unbooked.filter((transfer) => transfer.is_counted);
  const uncounted = unbooked.filter((transfer) => !transfer.is_counted);
  const isInAnotherBlock = creditedElsewhere(alive);
  const isNew = (transfer: Transfer): boolean =>
    takesMore(status) && isInTime(deposit, transfer) && !isInAnotherBlock(transfer);
  const fresh = uncounted.filter(isNew);
  const stray = uncounted.filter((transfer) => !isNew(transfer));
  if (stray.length > 0) return { kind: 'suspend', transfers: stray };
  if (isOpen(status)) return planOpen(status, inTime, facts);
  if (isCredited(status)) return planMore(fresh, counted);
  switch (status) {
    case 'settled':
      return { kind: 'move', to: 'screening', txHash };
    case 'screening':
    case 'held_screening':
      if (counted.length > 0) return { kind: 'screen', transfers: counted };
      // A rewind has taken all that was counted. The deposit waits until the chain has it again.
      if (fresh.length > 0) return { kind: 'settle', transfers: fresh };
      return status === 'screening' ? { kind: 'move', to: 'held_screening', txHash } : WAIT;
    case 'expired': {
      const late = alive.find(({ booking }) => booking !== null);
      return late === undefined ? WAIT : { kind: 'move', to: 'expired_received', txHash: late.tx_hash };
    }
    default:
      return WAIT;
  }
}

/** The status of a deposit by the amount that was credited. */
export function creditedState(
  { due_units: due }: Pick<Deposit, 'due_units'>,
  units: bigint,
  toleranceUnits: bigint,
): 'credited' | 'credited_underpaid' | 'credited_overpaid' {
  if (units < due - toleranceUnits) return 'credited_underpaid';
  return units > due + toleranceUnits ? 'credited_overpaid' : 'credited';
}

export function sumOf(transfers: readonly Pick<Transfer, 'units'>[]): bigint {
  return transfers.reduce((sum, { units }) => sum + units, 0n);
}

/** Whether the deposit still waits for tokens or for their finality. While it waits, the operator can cancel it. */
export function isOpen(status: DepositState): status is 'created' | 'detected' | 'confirming' {
  return status === 'created' || status === 'detected' || status === 'confirming';
}

/** Whether the deposit was credited. It is credited again with each further transfer that comes in time. */
export function isCredited(status: DepositState): boolean {
  return status === 'credited' || status === 'credited_underpaid' || status === 'credited_overpaid';
}

const WAIT: Plan = { kind: 'wait' };

/** Whether a transfer in time is credited. While the senders of the others are checked, it waits. */
function takesMore(status: DepositState): boolean {
  return isOpen(status) || isCredited(status) || ['settled', 'screening', 'held_screening'].includes(status);
}

function isInTime({ chain, asset, expires_ms: expiresMs }: Deposit, transfer: Transfer): boolean {
  return transfer.chain === chain && transfer.asset === asset && transfer.block_ms <= expiresMs;
}

/**
 * Tells whether the transaction of a transfer was credited in another block. The node was on a fork then, and the transfer may have another place in
 * its right block. The operator decides whether it is the same one. A stranger can send thousands of tiny transfers, so none is compared with all.
 */
function creditedElsewhere(transfers: readonly Transfer[]): (transfer: Transfer) => boolean {
  const credited = transfers.filter(({ booking }) => booking === 'wallet');
  const ofTransaction = Map.groupBy(credited, ({ tx_hash: txHash }) => txHash);
  const blocks = new Map(
    [...ofTransaction].map(([txHash, of]) => [txHash, new Set(of.map((each) => each.block_hash))]),
  );
  return ({ tx_hash: txHash, block_hash: blockHash }) => {
    const known = blocks.get(txHash);
    return known !== undefined && (known.size > 1 || !known.has(blockHash));
  };
}

function planOpen(
  status: 'created' | 'detected' | 'confirming',
  inTime: Transfer[],
  { deposit, chain, toleranceUnits }: Facts,
): Plan {
  const [first] = inTime;
  const isClosed = (chain?.final_ms ?? 0) > deposit.expires_ms;
  if (first === undefined) {
    const to = isClosed ? 'expired' : 'created';
    return status === to ? WAIT : { kind: 'move', to, txHash: null };
  }
  if (status === 'created') return { kind: 'move', to: 'detected', txHash: first.tx_hash };
  if (status === 'detected') {
    const isBuried = (chain?.head_number ?? 0) > first.block_number;
    return isBuried ? { kind: 'move', to: 'confirming', txHash: first.tx_hash } : WAIT;
  }
  // What is not final does not delay the rest. Otherwise a stranger could delay a deposit with a tiny transfer in each block.
  const final = inTime.filter((transfer) => transfer.status === 'final');
  const isEnough = sumOf(final) >= deposit.due_units - toleranceUnits;
  const isAll = isClosed && final.length === inTime.length;
  return final.length > 0 && (isEnough || isAll) ? { kind: 'settle', transfers: final } : WAIT;
}

/**
 * The plan of a deposit that was credited. The transfers of one sender are checked at a time, so that a stranger who is sanctioned cannot put
 * the tokens of the customer into suspense.
 */
function planMore(fresh: Transfer[], counted: Transfer[]): Plan {
  if (fresh.length > 0) return { kind: 'settle', transfers: fresh };
  const [first] = counted;
  if (first === undefined) return WAIT;
  return { kind: 'screen', transfers: counted.filter(({ from_address: from }) => from === first.from_address) };
}
