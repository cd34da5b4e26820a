// The last 24 hours of the overview. The state of links comes from the rows of minutes.ts, the outages come from their own table.
import type { OverviewDay } from '../../shared/api/overview.ts';
import { isoTime } from '../../shared/clock.ts';
import { dollarText } from '../../shared/money.ts';
import type { Query } from '../base/db/db.ts';
import { outagesSince } from '../money/credits/outages.ts';
import { type LinkMinute, linkMinutes, MINUTE_MS } from './minutes.ts';

const DAY_MS = 24 * 3_600_000;

export async function lastDayOf(query: Query, nowMs: number): Promise<OverviewDay> {
  const fromMs = nowMs - DAY_MS;
  const minutes = await linkMinutes(query, fromMs);
  const outages = await outagesSince(query, fromMs);
  const spans = outages.map(({ cause, fromMs: startMs, untilMs: endMs }) => ({
    state: cause === 'own_outage' ? ('away' as const) : ('outage' as const),
    fromMs: startMs,
    untilMs: endMs ?? nowMs,
  }));
  const credited = outages.reduce((sum, { grantedUcents }) => sum + grantedUcents, 0n);
  return {
    from: isoTime(fromMs),
    until: isoTime(nowMs),
    spans: [...linkSpans(minutes), ...spans].map((span) => ({
      state: span.state,
      from: isoTime(span.fromMs),
      until: isoTime(span.untilMs),
    })),
    silent_most: Math.max(0, ...minutes.map(({ listed, linked }) => listed - linked)),
    outages: outages.length,
    credited: dollarText(credited),
  };
}

interface Span {
  state: OverviewDay['spans'][number]['state'];
  fromMs: number;
  untilMs: number;
}

/** Joins consecutive minutes of the same state into one span. Minutes without a row between two rows become a span `away`. */
function linkSpans(minutes: readonly LinkMinute[]): Span[] {
  const spans: Span[] = [];
  const add = (state: Span['state'], fromMs: number, untilMs: number): void => {
    const last = spans.at(-1);
    if (last?.state === state && last.untilMs === fromMs) last.untilMs = untilMs;
    else spans.push({ state, fromMs, untilMs });
  };
  for (const { minute_ms: minuteMs, listed, linked } of minutes) {
    const last = spans.at(-1);
    const endMs = last?.untilMs ?? minuteMs;
    // The loop that writes the rows takes a little more than a minute, so a single missing row does not mean that nobody was there.
    if (minuteMs - endMs > MINUTE_MS) add('away', endMs, minuteMs);
    else if (last !== undefined) last.untilMs = minuteMs;
    add(linked < listed ? 'silent' : 'up', minuteMs, minuteMs + MINUTE_MS);
  }
  return spans;
}
