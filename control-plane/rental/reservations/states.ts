// The one `move` of a contract: status, slots and event change together or not at all.
import { fail } from '../../../shared/errors.ts';
import { mayMove, RESERVATION_STATES, type ReservationState } from '../../../shared/states.ts';
import type { Tx } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import type { Supply } from '../../fleet/supply/supply.ts';
import { awaitedGpus } from './allocate.ts';
import * as store from './store.ts';
import { isOver } from './term.ts';

export interface MoveDeps {
  events: Events;
  supply: Supply;
}

/**
 * Moves a contract and appends the event. The end of a contract releases its slots: free GPUs are on offer again at once, used ones when
 * their instance ends. @throws ServiceError `conflict` if the table does not allow the move
 */
export async function move(
  tx: Tx,
  contract: store.ReservationRow,
  to: ReservationState,
  { events, supply }: MoveDeps,
): Promise<store.ReservationRow> {
  const { id, org_id: orgId, status: from } = contract;
  if (from === to) return fail('conflict', `The reservation is ${to} already.`);
  const moved = mayMove(RESERVATION_STATES, from, to) && (await store.setStatus(tx, id, { from, to }));
  if (!moved) return fail('conflict', `The reservation is ${from} and cannot become ${to}.`);
  if (isOver({ status: to })) await supply.unreserve(tx, id);
  await events.append(tx, { type: `reservation.${to}`, subjectId: id, orgId, data: { status: to } });
  if (to === 'active') await noteShort(tx, contract, events);
  return { ...contract, status: to };
}

/** Appends an event if an active contract has fewer GPUs than it commits. */
async function noteShort(tx: Tx, { id, org_id: orgId }: store.ReservationRow, events: Events): Promise<void> {
  const missing = await awaitedGpus(tx, id);
  if (missing === 0) return;
  await events.append(tx, { type: 'reservation.short', subjectId: id, orgId, data: { missing_gpus: missing } });
}
