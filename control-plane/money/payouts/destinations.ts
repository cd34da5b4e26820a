// The destination of a supplier's payouts. The first one is in force at once. A change is in force after a delay, so that the supplier can
// cancel what a thief of its API key has asked for.
import type { Chain } from '../../../shared/api/payout.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { DESTINATION_CHANGES_PER_DAY_MAX } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import type { Events, EventType } from '../../base/events/events.ts';
import { maskAddress, readAddress } from './address.ts';
import { type Destinations, destinationsAt } from './plan.ts';
import * as store from './store.ts';

const DAY_MS = 86_400_000;

export interface Payee {
  supplierId: string;
  orgId: string;
}

export interface PayoutDestinations {
  of(query: Query, supplierId: string): Promise<Destinations>;
  /**
   * Sets the first destination, or asks for a change of it. A new change replaces a pending one. If the destination that is in force is
   * named again, the pending change is cancelled. The caller has locked the supplier. @throws ServiceError `validation_failed` for an
   * address that is wrong or of another chain, `rate_limit_exceeded` after too many changes in a day
   */
  change(tx: Tx, payee: Payee, wanted: { chain: Chain; address: string }): Promise<Destinations>;
  /** Cancels the pending change. The caller has locked the supplier. @throws ServiceError `conflict` if there is none */
  cancel(tx: Tx, payee: Payee): Promise<Destinations>;
}

export interface DestinationsDeps {
  clock: Clock;
  ids: Ids;
  log: Log;
  events: Pick<Events, 'append'>;
  /** The time from a change until it is in force. */
  destinationDelayMs: number;
}

export function openDestinations(deps: DestinationsDeps): PayoutDestinations {
  const { clock } = deps;
  const of: PayoutDestinations['of'] = async (query, supplierId) =>
    destinationsAt(await store.lastDestinations(query, supplierId), clock.now());
  const drop = async (tx: Tx, payee: Payee, { inForce, pending }: Destinations): Promise<void> => {
    if (pending === undefined) return;
    await store.cancelDestination(tx, pending.id, clock.now());
    await tell(tx, payee, { type: 'supplier.destination_cancelled', before: inForce, row: pending }, deps);
  };
  return {
    of,
    change: async (tx, payee, { chain, address: written }) => {
      const address = readAddress(chain, written);
      const known = await of(tx, payee.supplierId);
      const isSame = (row: store.DestinationRow | undefined): boolean =>
        row?.chain === chain && row.address === address;
      if (isSame(known.pending)) return known;
      await drop(tx, payee, known);
      if (isSame(known.inForce)) return { ...known, pending: undefined };
      const nowMs = clock.now();
      await assertChangesOfDay(tx, payee.supplierId, nowMs);
      const row: store.DestinationRow = {
        id: deps.ids.uuid(),
        supplier_id: payee.supplierId,
        chain,
        address,
        requested_ms: nowMs,
        in_force_ms: known.inForce === undefined ? nowMs : nowMs + deps.destinationDelayMs,
        cancelled_ms: null,
      };
      await store.insertDestination(tx, row);
      await tell(tx, payee, { type: 'supplier.destination_changed', before: known.inForce, row }, deps);
      return of(tx, payee.supplierId);
    },
    cancel: async (tx, payee) => {
      const known = await of(tx, payee.supplierId);
      if (known.pending === undefined) return fail('conflict', 'No change of the payout destination is pending.');
      await drop(tx, payee, known);
      return { ...known, pending: undefined };
    },
  };
}

/** @throws ServiceError `rate_limit_exceeded` */
async function assertChangesOfDay(tx: Tx, supplierId: string, nowMs: number): Promise<void> {
  const oldestMs = await store.timeOfNthChange(tx, supplierId, DESTINATION_CHANGES_PER_DAY_MAX);
  if (oldestMs === undefined || oldestMs <= nowMs - DAY_MS) return;
  fail('rate_limit_exceeded', {
    detail: `A payout destination may be changed ${DESTINATION_CHANGES_PER_DAY_MAX} times in a day. A pending change can still be cancelled.`,
    retryAfterSeconds: (oldestMs + DAY_MS - nowMs) / 1_000,
  });
}

/** Writes the change to the journal and the log. Both get masked addresses, which are enough to recognise an address. */
async function tell(
  tx: Tx,
  { supplierId, orgId }: Payee,
  change: { type: EventType; before: store.DestinationRow | undefined; row: store.DestinationRow },
  { events, log }: DestinationsDeps,
): Promise<void> {
  const { before, row } = change;
  const data = {
    chain: row.chain,
    address: maskAddress(row.address),
    old_chain: before?.chain ?? null,
    old_address: before === undefined ? null : maskAddress(before.address),
    in_force_at: isoTime(row.in_force_ms),
  };
  await events.append(tx, { type: change.type, subjectId: supplierId, orgId, data });
  log.warn({ supplier_id: supplierId, ...data }, `the payout destination of a supplier: ${change.type}`);
}
