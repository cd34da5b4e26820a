// What happens if a listening socket cannot accept a connection.
import type { Server } from 'node:net';
import type { Clock } from './clock.ts';
import type { Log } from './log.ts';

const LINE_PERIOD_MS = 60_000;
const NOT_ACCEPTED = 'a connection could not be accepted; if the reason is EMFILE, raise LimitNOFILE of this service';

interface AcceptErrorDeps {
  log: Log;
  clock: Pick<Clock, 'monotonicMs'>;
}

/**
 * Logs the errors of a server that listens, with `fields`, at most once a minute. If the process has no free file descriptor, each attempt to connect
 * is such an error. Without a listener, Node would end the process.
 */
export function logAcceptErrors(server: Server, fields: object, { log, clock }: AcceptErrorDeps): void {
  let nextMs = Number.NEGATIVE_INFINITY;
  let suppressed = 0;
  server.on('error', (error) => {
    const nowMs = clock.monotonicMs();
    if (nowMs < nextMs) {
      suppressed += 1;
      return;
    }
    log.error({ ...fields, err: error, suppressed_lines: suppressed }, NOT_ACCEPTED);
    nextMs = nowMs + LINE_PERIOD_MS;
    suppressed = 0;
  });
}
