// How a deposit is shown: the name of its chain, and its state as a badge, its consequence, and the number of steps that are done.
import type { Deposit, DepositChain } from '../../../../shared/api/deposit.ts';
import { cents } from '../core/format.ts';
import type { Tone } from '../parts/layout.tsx';

type Status = Deposit['status'];

export const STEPS = [
  'Tokens are sent',
  'The transfer is on the chain',
  'The transfer is final',
  'The sender is checked',
  'The balance grows',
] as const;

interface State {
  tone: Tone;
  text: string;
  /** Index of the step that is under way. All steps before it are done. If it is the number of steps, all are done. */
  step: number;
  /** What happens next, or what to do. */
  next: string;
}

const CREDITED = { tone: 'ok', step: STEPS.length } as const;

const STATES: Record<Status, State> = {
  created: { tone: 'info', text: 'waits for tokens', step: 0, next: 'Send the amount to the address.' },
  detected: { tone: 'info', text: 'seen', step: 1, next: 'The transfer was seen. The chain has to confirm it.' },
  confirming: { tone: 'info', text: 'confirming', step: 2, next: 'The chain has to make the transfer final.' },
  settled: { tone: 'info', text: 'settled', step: 3, next: 'The senders are checked against sanctions lists.' },
  screening: { tone: 'info', text: 'screening', step: 3, next: 'The senders are checked against sanctions lists.' },
  held_screening: {
    tone: 'warn',
    text: 'held for screening',
    step: 3,
    next: 'The check waits for an answer or for the operator. Nothing is lost.',
  },
  credited: { ...CREDITED, text: 'credited', next: 'It is part of the balance.' },
  credited_underpaid: { ...CREDITED, tone: 'warn', text: 'credited, underpaid', next: 'Less came than was asked for.' },
  credited_overpaid: {
    ...CREDITED,
    text: 'credited, overpaid',
    next: 'More came than was asked for. All is credited.',
  },
  expired: { tone: '', text: 'expired', step: 0, next: 'Nothing came in time. Send nothing to this address.' },
  expired_received: {
    tone: 'warn',
    text: 'came too late',
    step: 1,
    next: 'Tokens came after the end. The operator decides: write to them with the id of this deposit.',
  },
  failed: {
    tone: 'bad',
    text: 'cancelled',
    step: 0,
    next: 'The operator has cancelled it. Send nothing to this address.',
  },
  failed_screening: {
    tone: 'bad',
    text: 'failed screening',
    step: 3,
    next: 'A sender is on a sanctions list. Nothing is credited.',
  },
};

const CHAIN_NAMES: Record<DepositChain, string> = {
  base: 'Base',
  arbitrum: 'Arbitrum',
  polygon: 'Polygon',
  solana: 'Solana',
  ethereum: 'Ethereum',
};

export const chainName = (chain: DepositChain): string => CHAIN_NAMES[chain];

export const stateOf = ({ status }: Pick<Deposit, 'status'>): State => STATES[status];

/** True if tokens that are sent now still count for the deposit. */
export function takesTokens({ status, expires_at: end }: Deposit, nowMs: number): boolean {
  return (status === 'created' || status === 'detected' || status === 'confirming') && Date.parse(end) > nowMs;
}

/** The difference in words, like `$1.50 less than asked`; undefined if there is none. */
export function difference({ credited_cents: credited, amount_usd_cents: asked }: Deposit): string | undefined {
  if (credited === undefined || credited === asked) return undefined;
  return `${cents(Math.abs(credited - asked))} ${credited < asked ? 'less' : 'more'} than asked`;
}
