// The states of a deposit, and the only function that changes them. The status, the money and the event change together or not at all.
//
// | from                       | on                                                           | to                           |
// | created                    | a transfer in a block that is not later than expires_at      | detected                     |
// | detected                   | another block on top of it                                   | confirming                   |
// | confirming                 | what is final is enough, or the time is up                   | settled                      |
// | detected, confirming       | a reorganisation took everything that counted                | created, or expired          |
// | created                    | a final block is later than expires_at                       | expired                      |
// | expired                    | a final transfer comes later                                 | expired_received             |
// | settled                    | at once                                                      | screening                    |
// | screening, held_screening  | the senders are clear                                        | credited (_under-, _overpaid)|
// | screening                  | nobody can say, or a rewind has taken all that counted       | held_screening               |
// | screening, held_screening  | a sender is sanctioned                                       | failed_screening             |
// | expired_received, credited*| the operator credits what is in suspense                     | credited (_under-, _overpaid)|
// | credited*                  | a further transfer in time is final, and its sender is clear | credited (_under-, _overpaid)|
// | created to confirming      | the operator cancels it                                      | failed                       |
import { DEPOSIT_STATES, type DepositState, mayMove } from '../../../shared/states.ts';
import type { Tx } from '../../base/db/db.ts';
import type { EventData, Events } from '../../base/events/events.ts';
import { type Deposit, type Patch, setStatus } from './store.ts';

export interface Move {
  to: DepositState;
  patch: Patch;
  data?: EventData;
}

/** Moves a deposit whose row was read and locked in this transaction. */
export async function move(tx: Tx, deposit: Deposit, { to, patch, data = {} }: Move, events: Events): Promise<void> {
  const { id, org_id: orgId, status: from } = deposit;
  if (!mayMove(DEPOSIT_STATES, from, to)) throw new Error(`the deposit ${id} cannot go from ${from} to ${to}`);
  if (!(await setStatus(tx, id, { from, to }, patch))) throw new Error(`the deposit ${id} is not ${from} any more`);
  await events.append(tx, { type: `deposit.${to}`, subjectId: id, orgId, data: { status: to, ...data } });
}
