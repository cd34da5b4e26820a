// Contracts of all organisations for reserved capacity: made, extended, suspended and ended.
import { ListingView, type Listing } from './listing.tsx';
import { Make } from './making.tsx';
import { RESERVATION } from './makings.ts';
import { textOf } from './verbs.ts';

const IS_OVER = ['cancelled', 'expired'];

const LISTING: Listing = {
  title: 'Reservations',
  path: '/admin/v1/reservations?limit=100',
  cli: 'svc-control-plane admin reservation list',
  id: 'reservation_id',
  columns: ['title', 'status', 'org_id', 'starts_at', 'ends_at', 'commitment', 'set_aside', 'reservation_id'],
  what: 'Contracts that set GPUs aside for one organisation.',
  verbs: [
    {
      verb: 'extend',
      says: 'The term ends later. What runs goes on.',
      takes: [{ field: 'ends_at', option: 'ends', label: 'New end', initial: (row) => textOf(row['ends_at']) }],
      fits: ({ status }) => !IS_OVER.includes(textOf(status)),
    },
    {
      verb: 'suspend',
      says: 'New launches on it are refused. What runs goes on, and its GPUs stay set aside.',
      fits: ({ status }) => status === 'active',
    },
    {
      verb: 'resume',
      says: 'Launches may use it again.',
      fits: ({ status }) => status === 'suspended',
    },
    {
      verb: 'cancel',
      words: 'End the contract',
      says: 'The contract ends for good. What runs goes on, and all other GPUs are on offer again.',
      fits: ({ status }) => !IS_OVER.includes(textOf(status)),
    },
    {
      verb: 'reassign',
      says: 'Unused GPUs whose host is offline or delisted are replaced by free ones of the same type and region.',
      fits: ({ status }) => status === 'active' || status === 'pending',
    },
  ],
};

export function Reservations() {
  return <ListingView listing={LISTING} actions={(reload) => <Make making={RESERVATION} made={reload} />} />;
}
