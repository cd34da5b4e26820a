// The supervisor's end of one holder's socket: receives the holder's status, and asks it to dial streams.
import type { Socket } from 'node:net';
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import { STREAM_DIAL_MS_MAX } from '../../shared/limits.ts';
import type { Log } from '../../shared/log.ts';
import type { HolderStatus } from '../runtime/observe.ts';
import { eachFrame, FRAME, FRAME_BYTES_MAX, sendJson } from '../wire/frames.ts';
import { type HolderTarget, HolderReport, readHolderMessage, type SupervisorMessage } from '../wire/holder-messages.ts';

export interface StreamOpen {
  workload_id: string;
  stream_id: string;
  url: string;
  ca: string | undefined;
  target: HolderTarget;
}

export interface Holder {
  socket: Socket;
  status(): HolderStatus;
  /** Resolves once the stream is dialled; rejects with the holder's reason. */
  open(stream: StreamOpen): Promise<void>;
  /** Waits for the first status, which a holder sends as soon as it is connected. A holder that sends none within five seconds is silent. */
  firstStatus(): Promise<FirstStatus>;
  /** Pings the holder. Resolves with true if it answers within five seconds. */
  answers(): Promise<boolean>;
}

export type FirstStatus = 'up' | 'silent' | 'gone';

/** A holder that is busy with its own tenant still answers within this. */
const ANSWER_MS_MAX = 4_500;
/** Extra time to read an answer that has already arrived. If the whole host stood still, the timer of ANSWER_MS_MAX fires before that read. */
const ANSWER_READ_MS = 500;

interface HolderDeps {
  clock: Clock;
  log: Log;
  workloadId: string;
}

/** `onChange` gets every status, and `undefined` once when the holder is gone. */
export function serveHolder(
  socket: Socket,
  deps: HolderDeps,
  onChange: (status: HolderStatus | undefined) => void,
): Holder {
  const opening = new Map<string, { resolve: () => void; reject: (error: Error) => void }>();
  let pong = Promise.withResolvers<boolean>();
  const first = Promise.withResolvers<FirstStatus>();
  let status: HolderStatus = { up: false, guest: false, host_key: null, main_exit: null };

  const receive = (news: HolderReport): void => {
    switch (news.kind) {
      case 'status':
        status = { up: true, guest: news.guest, host_key: news.host_key, main_exit: news.main_exit };
        first.resolve('up');
        return onChange(status);
      case 'pong':
        return pong.resolve(true);
      case 'opened':
        return opening.get(news.stream_id)?.resolve();
      case 'refused':
        return opening.get(news.stream_id)?.reject(new Error(news.detail));
    }
  };
  const listen = async (): Promise<void> => {
    try {
      await eachFrame(socket, FRAME_BYTES_MAX, ({ type, payload }) => {
        if (type !== FRAME.json) return;
        const news = readHolderMessage(HolderReport, payload);
        // A holder that a newer agent has started stays when an older agent is installed again.
        if ('known' in news) receive(news.known);
      });
    } catch (error) {
      deps.log.warn(
        { workload_id: deps.workloadId, detail: messageOf(error) },
        'a holder has sent a malformed message',
      );
    }
    socket.destroy();
    for (const one of opening.values()) one.reject(new Error('the holder went away'));
    pong.resolve(false);
    first.resolve('gone');
    onChange(undefined);
  };
  void listen();

  return {
    socket,
    status: () => status,
    firstStatus: async () => (await inTime(first.promise, deps.clock)) ?? 'silent',
    answers: async () => {
      pong = Promise.withResolvers<boolean>();
      sendJson(socket, { kind: 'ping' } satisfies SupervisorMessage);
      return (await inTime(pong.promise, deps.clock)) === true;
    },
    open: async ({ stream_id, url, ca, target }) => {
      const answer = Promise.withResolvers<void>();
      opening.set(stream_id, answer);
      const cancel = deps.clock.after(STREAM_DIAL_MS_MAX, () =>
        answer.reject(new Error('the holder did not dial in time')),
      );
      const word: SupervisorMessage = { kind: 'open', stream_id, url, ca: ca ?? null, target };
      sendJson(socket, word);
      await answer.promise.finally(() => {
        cancel();
        opening.delete(stream_id);
      });
    },
  };
}

/** Sends a holder the order to end. Resolves once its connection has closed, or after five seconds. */
export async function endHolder(socket: Socket, clock: Clock): Promise<void> {
  if (socket.destroyed) return;
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  const word: SupervisorMessage = { kind: 'exit' };
  sendJson(socket, word);
  socket.end();
  await inTime(closed, clock);
}

/**
 * A holder passes bytes on and keeps little. If a client makes it grow, only this holder ends. The young generation is small and
 * collected often, so dead buffers are freed there and cause no collection of the whole heap.
 */
export const HOLDER_FLAGS = ['--max-old-space-size=192', '--max-semi-space-size=1', '--disable-sigusr1'] as const;

/** The result of `work`, or undefined if it takes more than five seconds. */
function inTime<T>(work: Promise<T>, clock: Clock): Promise<T | undefined> {
  const { promise, resolve } = Promise.withResolvers<T | undefined>();
  let cancel = clock.after(ANSWER_MS_MAX, () => {
    cancel = clock.after(ANSWER_READ_MS, () => resolve(undefined));
  });
  void work.then(resolve);
  return promise.finally(() => cancel());
}
