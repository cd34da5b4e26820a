// The holder's end of a connection to the supervisor, which may be newer than this holder.
import type { Socket } from 'node:net';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import { eachFrame, FRAME, sendJson } from '../wire/frames.ts';
import {
  HOLDER_MESSAGE_BYTES_MAX,
  type HolderReport,
  readHolderMessage,
  SupervisorMessage,
} from '../wire/holder-messages.ts';

export type OpenRequest = Extract<SupervisorMessage, { kind: 'open' }>;

interface SupervisorDeps {
  log: Log;
  /** The workload is over. */
  exit(): void;
  open(word: OpenRequest, tell: (news: HolderReport) => void): void;
}

const TOO_NEW =
  'the holder of this rental is older than the request: it serves such requests once the rental has a new holder';

/** Obeys the supervisor until it leaves. A malformed message ends the connection; one that this holder is too old for is refused. */
export async function serveSupervisor(socket: Socket, { log, exit, open }: SupervisorDeps): Promise<void> {
  const tell = (news: HolderReport): void => sendJson(socket, news);
  const obey = (payload: Buffer): void => {
    const word = readHolderMessage(SupervisorMessage, payload);
    if ('unknown' in word) {
      const { kind, stream_id } = word.unknown;
      log.warn({ kind }, 'the supervisor is newer than this holder, which does not know its message');
      if (stream_id !== undefined) tell({ kind: 'refused', stream_id, detail: TOO_NEW });
      return;
    }
    if (word.known.kind === 'exit') return exit();
    if (word.known.kind === 'ping') return tell({ kind: 'pong' });
    open(word.known, tell);
  };
  try {
    await eachFrame(socket, HOLDER_MESSAGE_BYTES_MAX, ({ type, payload }) => {
      if (type === FRAME.json) obey(payload);
    });
  } catch (error) {
    log.warn({ detail: messageOf(error) }, 'the supervisor has sent a malformed message');
  }
}
