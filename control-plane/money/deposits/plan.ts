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
// Only the times of blocks count. If the node is an hour behind, the deposit expires an hour later, after its transfers were seen.
import type { DepositState } from '../../../shared/states.ts';
import type { ChainRow } from './chains-store.ts';
import type { Deposit } from './store.ts';
import type { Transfer } from './transfers-store.ts';

export type Plan =
  | { kind: 'wait' }
  | { kind: 'move'; to: DepositState; txHash: string | null }
  /** These transfers will be credited. Their receipts are checked first. */
  | { kind: 'settle'; transfers: Transfer[] }
  /** The senders of these transfers are checked. */
  | { kind: 'screen'; transfers: Transfer[] }
  /** These transfers are final, but the deposit cannot be credited with them. They go into suspense. */
  | { kind: 'suspend'; transfers: Transfer[] };

export interface Facts {
  deposit: Deposit;
  /** The transfers in the order of the chain. */
  transfers: readonly Transfer[];
  /** Undefined if the chain was never read. */
  chain: Pick<ChainRow, 'head_number' | 'final_ms'> | undefined;
  toleranceUnits: bigint;
}

export function planOf(facts: Facts): Plan {
  const { deposit, transfers } = facts;
  const alive = transfers.filter(({ status }) => status !== 'orphaned');
  const inTime = alive.filter((transfer) => isInTime(deposit, transfer));
  const stray = alive.filter(
    (transfer) =>
      transfer.status === 'final' &&
      transfer.booking === null &&
      !transfer.is_counted &&
      !(isOpen(deposit.status) && inTime.includes(transfer)),
  );
  if (stray.length > 0) return { kind: 'suspend', transfers: stray };
  switch (deposit.status) {
    case 'created':
    case 'detected':
    case 'confirming':
      return planOpen(deposit.status, inTime, facts);
    case 'settled':
      return { kind: 'move', to: 'screening', txHash: deposit.tx_hash };
    case 'screening':
    case 'held_screening':
      return { kind: 'screen', transfers: transfers.filter(({ is_counted: isCounted }) => isCounted) };
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

const WAIT: Plan = { kind: 'wait' };

function isInTime({ chain, asset, expires_ms: expiresMs }: Deposit, transfer: Transfer): boolean {
  return transfer.chain === chain && transfer.asset === asset && transfer.block_ms <= expiresMs;
}

function planOpen(
  status: 'created' | 'detected' | 'confirming',
  counted: Transfer[],
  { deposit, chain, toleranceUnits }: Facts,
): Plan {
  const [first] = counted;
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
  const isFinal = counted.every((transfer) => transfer.status === 'final');
  const isEnough = sumOf(counted) >= deposit.due_units - toleranceUnits;
  return isFinal && (isEnough || isClosed) ? { kind: 'settle', transfers: counted } : WAIT;
}
