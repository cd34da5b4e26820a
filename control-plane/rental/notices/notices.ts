// The interface of this room: it takes events in, and its loop makes letters of them and mails these.
import { throwAll } from '../../../shared/errors.ts';
import type { Tx } from '../../base/db/db.ts';
import type { EventRow } from '../../base/events/events.ts';
import { composeDue, type ComposeDeps } from './compose.ts';
import { GATHER_MS } from './limits.ts';
import { lookAtMachines, type MachinesDeps } from './machines.ts';
import { postDue, type PostDeps } from './post.ts';
import { insertNotice } from './store.ts';
import { topicOf } from './topics.ts';

export interface Notices {
  /** False: the operator has no mail server, so nobody is told anything. */
  isOn: boolean;
  /** Called in the transaction of the event. */
  noteEvent(tx: Tx, event: EventRow): Promise<void>;
  /** Makes and sends what is due. True if there may be more. @throws what has failed, at the end; DbError at once */
  run(signal: AbortSignal): Promise<boolean>;
  /** Notes which machines are in trouble or in order again. @throws what has failed, at the end; DbError at once */
  lookAtMachines(signal: AbortSignal): Promise<void>;
}

export function openNotices(deps: ComposeDeps & PostDeps & MachinesDeps): Notices {
  const isOn = deps.mail.isConfigured;
  return {
    isOn,
    noteEvent: async (tx, event) => {
      if (isOn) await note(tx, event);
    },
    lookAtMachines: (signal) => lookAtMachines(signal, deps),
    run: async (signal) => {
      const failures: unknown[] = [];
      const failed = (error: unknown): false => {
        failures.push(error);
        return false;
      };
      const isMoreToWrite = await composeDue(signal, deps).catch(failed);
      // Letters leave although another one could not be made.
      const isMoreToSend = await postDue(signal, deps).catch(failed);
      throwAll(failures);
      return isMoreToWrite || isMoreToSend;
    },
  };
}

async function note(tx: Tx, event: EventRow): Promise<void> {
  const { id, type, subject_id, org_id, data, created_ms } = event;
  const topic = topicOf(event);
  if (topic === undefined || org_id === null) return;
  await insertNotice(tx, { id, org_id, topic, type, subject_id, data, created_ms, due_ms: created_ms + GATHER_MS });
}
