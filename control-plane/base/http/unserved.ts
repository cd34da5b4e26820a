// The refusal of a request that no control plane serves at the moment, and the log line that tells the operator why.
import { messageOf, ServiceError } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import type { Peer } from './peers.ts';

/** The refusal of what nobody serves. A request may have had its effect if its connection broke. */
export function unserved(cause?: Error): ServiceError {
  return new ServiceError('unavailable', {
    detail:
      'No control plane serves this at the moment. Send the same request again in a second, with the same Idempotency-Key if it has one.',
    retryAfterSeconds: 1,
    cause,
  });
}

/** Why the primary has not answered: an error of the connection, or another server answers at its address. */
export type Failure = Error | 'not_the_primary';

/** Logs why a request that was passed on has failed. Returns the refusal for its client. */
export type RefusalAfter = (failure: Failure, of: { clientIp: string; to: Peer }) => ServiceError;

const NOT_THE_PRIMARY =
  'what answers at the peer_url of the primary is not the primary, so its answers are refused: let peer_url of that control plane lead to its API';

/** `log` should be throttled: anyone can send requests that fail. */
export function openRefusalAfter(log: Log): RefusalAfter {
  return (failure, { clientIp, to }) => {
    const fields = { client_ip: clientIp, primary: to.url };
    if (failure === 'not_the_primary') {
      log.warn(fields, NOT_THE_PRIMARY);
      return unserved();
    }
    log.warn({ ...fields, detail: messageOf(failure) }, 'the primary does not answer');
    return unserved(failure);
  };
}
