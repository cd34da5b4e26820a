// Stablecoin deposits of all organisations, and what operators decide about them.
import { type Listing, ListingView } from './listing.tsx';
import { REASON, type Row, type Verb } from './verbs.ts';

export const DEPOSITS = { path: '/admin/v1/deposits', command: 'svc-control-plane admin deposit' };

/** A deposit in one of these states may have received more tokens later. Those tokens are held until the operator credits them. */
const CREDITED = ['credited', 'credited_underpaid', 'credited_overpaid'];
const CREDITABLE = ['held_screening', 'expired_received', ...CREDITED];
const REJECTABLE = ['created', 'detected', 'confirming', 'held_screening', ...CREDITED];
const RETURNABLE = ['failed', 'failed_screening', 'expired_received', ...CREDITED];

const isOf = (states: readonly string[], row: Row): boolean => states.includes(String(row['status']));

export const DEPOSIT_VERBS: readonly Verb[] = [
  {
    verb: 'credit',
    says: 'Credits tokens whose senders could not be checked, or that came late. A sender that is known to be sanctioned stays refused.',
    takes: [REASON],
    fits: (row) => isOf(CREDITABLE, row),
  },
  {
    verb: 'reject',
    says: 'Cancels an open deposit, or refuses tokens whose senders could not be checked.',
    takes: [REASON],
    fits: (row) => isOf(REJECTABLE, row),
  },
  {
    verb: 'returned',
    words: 'note as sent back',
    says: 'The books say from then on that what this transaction brought was sent back. Send it first: the service sends nothing.',
    takes: [{ field: 'tx_hash', option: 'tx', label: 'Transaction that brought the tokens' }, REASON],
    fits: (row) => isOf(RETURNABLE, row),
  },
  {
    verb: 'rescan',
    says: 'Looks for transfers of one transaction that no watcher has seen.',
    takes: [{ field: 'tx_hash', option: 'tx', label: 'Transaction' }, REASON],
  },
];

const LISTING: Listing = {
  title: 'Deposit queue',
  path: `${DEPOSITS.path}?limit=100`,
  cli: `${DEPOSITS.command} list`,
  id: 'deposit_id',
  columns: ['deposit_id', 'status', 'amount', 'credited', 'chain', 'asset', 'org_id', 'created_at'],
  what: 'Stablecoin deposits. Those that are held, or got tokens late, wait for a decision.',
  verbs: DEPOSIT_VERBS,
  filters: [
    ['Needs a decision', 'waiting=true', '--waiting'],
    ['All', '', ''],
    ['Held', 'status=held_screening', '--status held_screening'],
    ['Late', 'status=expired_received', '--status expired_received'],
  ],
  page: '/console/operate/deposit-queue',
};

export function DepositQueue() {
  return <ListingView listing={LISTING} />;
}
