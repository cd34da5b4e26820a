// Whether the PostgreSQL server can be reached. Each use of a connection is noted here, so that a server that is away is one error line, and one line
// when it is back. What fails meanwhile for this reason (`isDatabaseAway`) is not logged again: many loops ask the database each second.
import type { Clock } from '../../../shared/clock.ts';
import { messageOf } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import { isAway } from './db.ts';

/**
 * The server counts as back when nothing has failed for this long. Otherwise a server that takes some connections and refuses others would fill the
 * log.
 */
const STEADY_MS = 5_000;

export interface Reach {
  worked(): void;
  /** Errors of another kind than an unreachable server are ignored. */
  failed(error: unknown): void;
  /** The server or the network has ended a connection that nobody used. A statement that follows shows whether the server is away. */
  lostIdle(error: unknown): void;
}

export function openReach({ clock, log }: { clock: Clock; log: Log }): Reach {
  let away: { sinceMs: number; failedMs: number } | undefined;
  let lostMs: number | undefined;
  return {
    worked: () => {
      if (away === undefined) return;
      const nowMs = clock.monotonicMs();
      if (nowMs - away.failedMs < STEADY_MS) return;
      log.info({ away_ms: Math.round(away.failedMs - away.sinceMs) }, 'the database can be reached again');
      away = undefined;
    },
    failed: (error) => {
      if (!isAway(error)) return;
      const failedMs = clock.monotonicMs();
      if (away === undefined)
        log.error(
          { detail: messageOf(error) },
          'the database cannot be reached: what needs it is tried again and again, and is logged when that works',
        );
      away = { sinceMs: away?.sinceMs ?? failedMs, failedMs };
    },
    lostIdle: (error) => {
      const nowMs = clock.monotonicMs();
      // The server ends all of them at the same time.
      if (lostMs === undefined || nowMs - lostMs >= STEADY_MS)
        log.warn({ detail: messageOf(error) }, 'an idle database connection was lost');
      lostMs = nowMs;
    },
  };
}
