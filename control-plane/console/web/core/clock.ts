// The time of the service. The clock of a browser may be wrong by hours: every "left" and "ago" would then be wrong too, and the API would refuse
// a month or a window that has not begun.

/**
 * A difference up to this is ignored. The header `Date` has whole seconds and the answer takes time to arrive, so even for an exact clock the
 * difference varies by up to this much. Without the limit, times on the screen would jump.
 */
const VARIES_MS = 3_000;

/** How far the clock of the service is ahead of the browser's. */
const service = { aheadMs: 0 };

/** Milliseconds of the epoch, by the clock of the service as its last answers gave it. */
export function serviceNow(): number {
  return Date.now() + service.aheadMs;
}

/** Takes the time of the service from the header `Date` of an answer. */
export function hearTime(answer: Response): void {
  const serviceMs = Date.parse(answer.headers.get('date') ?? '');
  if (Math.abs(serviceMs - serviceNow()) > VARIES_MS) service.aheadMs = serviceMs - Date.now();
}
