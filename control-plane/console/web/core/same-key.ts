// The Idempotency-Key of a decision of the person. If the answer to it is lost and the person sends it again, the service must know it again: else
// one decision makes two things that cost money.
import { ApiError } from './api.ts';

type SameKey = <T>(body: unknown, send: (options: { idempotencyKey: string }) => Promise<T>) => Promise<T>;

/**
 * Returns a function that calls `send` with a key. It gives the same key again only for an equal body, and only while nobody knows what became
 * of the request before.
 */
export function openSameKey(): SameKey {
  let sent: { text: string; key: string } | undefined;
  return async (body, send) => {
    const text = JSON.stringify(body);
    if (sent?.text !== text) sent = { text, key: crypto.randomUUID() };
    try {
      const answer = await send({ idempotencyKey: sent.key });
      sent = undefined;
      return answer;
    } catch (failure) {
      if (isKnown(failure)) sent = undefined;
      throw failure;
    }
  };
}

/** Whether the failure says that nothing was made. The service would repeat such a refusal under the same key. */
function isKnown(failure: unknown): boolean {
  if (!(failure instanceof ApiError)) return false;
  const { status, code } = failure;
  // A proxy may answer 5xx for a request that the service has carried out.
  return status < 500 && status !== 429 && code !== 'unreachable' && code !== 'idempotency_key_in_use';
}
