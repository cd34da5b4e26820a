// Answers that callers do not read. Such an answer stays in memory, so a few hundred requests could take all of it.
//
// A connection is closed if it has taken nothing of an answer for minutes. Large answers that wait also have a limit together: above it, the one
// that has waited longest loses its connection. A caller that reads is never that one, because it has its answer within seconds.
import type { ServerResponse } from 'node:http';
import { ANSWER_STALLED_MS_MAX, UNSENT_BYTES_MAX } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';

export interface Unsent {
  /** Closes the connection if the caller takes nothing of the answer for ANSWER_STALLED_MS_MAX. */
  watch(response: ServerResponse): void;
  /** Counts an answer of `bytes` until it is sent, or its connection is closed. Small answers do not count. */
  hold(response: ServerResponse, bytes: number): void;
}

interface UnsentLimits {
  bytesMax: number;
  stalledMs: number;
}

/** A smaller answer does not count: the network takes most of it at once. */
const LARGE_BYTES = 1_048_576;

/** Tests name limits of their own. */
export function openUnsent(
  log: Log,
  { bytesMax, stalledMs }: UnsentLimits = { bytesMax: UNSENT_BYTES_MAX, stalledMs: ANSWER_STALLED_MS_MAX },
): Unsent {
  /** The bytes of each answer. The answer that has waited longest is the first. */
  const waiting = new Map<ServerResponse, number>();
  let waitingBytes = 0;

  const forget = (response: ServerResponse): void => {
    waitingBytes -= waiting.get(response) ?? 0;
    waiting.delete(response);
  };
  const cutOldest = (): void => {
    for (const [response, bytes] of waiting) {
      if (waitingBytes <= bytesMax) return;
      log.warn(
        { client_ip: response.req.socket.remoteAddress, bytes, waiting: waiting.size },
        'too many large answers wait; the caller that has not read the oldest is cut off',
      );
      forget(response);
      response.destroy();
    }
  };

  return {
    // Node also calls this while an answer is still computed.
    watch: (response) =>
      void response.setTimeout(stalledMs, () => {
        if ((response.socket?.writableLength ?? 0) > 0) response.destroy();
      }),
    hold: (response, bytes) => {
      if (bytes < LARGE_BYTES) return;
      // The caller may have left while its answer was made. The `close` does not come again, so the answer would count for ever.
      if (response.req.socket.destroyed) return;
      waiting.set(response, bytes);
      waitingBytes += bytes;
      response.once('finish', () => forget(response));
      response.once('close', () => forget(response));
      cutOldest();
    },
  };
}
