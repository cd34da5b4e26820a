// Moves the public status of a machine. This is the only writer of that column.
import { MACHINE_STATES, type MachineState, mayMove } from '../../../shared/states.ts';
import { fail } from '../../../shared/errors.ts';
import type { Tx } from '../../base/db/db.ts';
import type { Events, EventType } from '../../base/events/events.ts';
import { orgOfMachine } from './owners.ts';
import * as store from './store.ts';

const EVENT_OF: Record<MachineState, EventType> = {
  pending_verification: 'machine.pending',
  listed: 'machine.listed',
  draining: 'machine.draining',
  delisted: 'machine.delisted',
  suspended: 'machine.suspended',
};

/** Moves the status and appends the event. @throws ServiceError `conflict` if the table forbids the move or another writer was faster */
export async function move(
  tx: Tx,
  machine: store.MachineRow,
  to: MachineState,
  deps: { events: Events; nowMs: number },
): Promise<void> {
  if (machine.status === to) fail('conflict', `The machine is ${to} already.`);
  const allowed = mayMove(MACHINE_STATES, machine.status, to);
  const moved =
    allowed && (await store.setMachineState(tx, machine.id, { from: machine.status, to, nowMs: deps.nowMs }));
  if (!moved) fail('conflict', `The machine is ${machine.status} and cannot become ${to}.`);
  await deps.events.append(tx, {
    type: EVENT_OF[to],
    subjectId: machine.id,
    orgId: await orgOfMachine(tx, machine.id),
    data: { machine_id: machine.id, status: to },
  });
}
