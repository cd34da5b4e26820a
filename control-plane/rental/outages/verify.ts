// The proof that all time of a rental was charged, or has a reason why not. Every rental is read for itself, in the nightly proof.
//
// The journal says from when to when the rental ran. Its segments are the charged time. Each gap must be covered by reasons:
//   - uncharged time with its evidence: an outage, a broken GPU, an own outage (money/credits)
//   - a dispute that was decided for the customer (money/payouts)
//   - a wall clock that was set forward: that time never passed
//   - a GPU that was broken before the rental ran for the first time (the journal)
//
//   ran       |-----------------------------------------------|
//   charged   |-------|            |------------|             |
//   reasons           |--outage----|            |--broken GPU-|
import { type Clock, isoTime } from '../../../shared/clock.ts';
import type { Query } from '../../base/db/db.ts';
import type { EventRow, Events } from '../../base/events/events.ts';
import { freeTimesOf } from '../../money/credits/store.ts';
import type { SubjectProof } from '../../money/ledger/charges.ts';
import { segmentsOf } from '../../money/metering/store.ts';
import { disputesOf } from '../../money/payouts/disputes.ts';
import { instancesAfter } from '../instances/store.ts';
import { clockSteps } from './own-outages.ts';

/** No transaction lasts this long. So the journal has entered a move at most this long after the moment that counts for billing. */
const MOVE_MS_MAX = 60_000;
const EVENTS_MAX = 10_000;
const ENDS = ['instance.stopping', 'instance.terminated', 'instance.failed'];

/** A span of time. It includes `fromMs` and excludes `untilMs`. */
export interface Span {
  fromMs: number;
  untilMs: number;
}

export function gapProof({ events, clock }: { events: Pick<Events, 'ofSubject'>; clock: Clock }): SubjectProof {
  return {
    subjectsAfter: instancesAfter,
    prove: async (query, subjectId) => {
      const charged = (await segmentsOf(query, [subjectId])).map(({ started_ms: fromMs, ended_ms: endedMs }) => ({
        fromMs,
        untilMs: endedMs ?? Number.POSITIVE_INFINITY,
      }));
      const journal = (await events.ofSubject(query, subjectId, { count: EVENTS_MAX })).toReversed();
      const ran = ranIn(journal, charged, clock.now());
      if (ran === undefined) return [];
      const reasons = await reasonsOf(query, subjectId, journal);
      return uncovered(ran, [...charged, ...reasons]).map(
        ({ fromMs, untilMs }) =>
          `${subjectId}: ran from ${isoTime(fromMs)} to ${isoTime(untilMs)} and was not charged, for no known reason`,
      );
    },
  };
}

/** The parts of `ran` that none of the spans covers. */
export function uncovered(ran: Span, spans: readonly Span[]): Span[] {
  const gaps: Span[] = [];
  let { fromMs } = ran;
  for (const span of spans.toSorted((a, b) => a.fromMs - b.fromMs)) {
    const untilMs = Math.min(span.fromMs, ran.untilMs);
    if (untilMs > fromMs) gaps.push({ fromMs, untilMs });
    fromMs = Math.max(fromMs, span.untilMs);
  }
  if (ran.untilMs > fromMs) gaps.push({ fromMs, untilMs: ran.untilMs });
  return gaps;
}

/** When the rental ran. If the journal is forgotten, only the time between its segments is known. */
function ranIn(journal: readonly EventRow[], charged: readonly Span[], nowMs: number): Span | undefined {
  const began = journal.find(({ type }) => type === 'instance.running');
  if (began === undefined) {
    const [first, last] = [charged[0], charged.at(-1)];
    return first && last && { fromMs: first.fromMs, untilMs: last.fromMs };
  }
  const ended = journal.find(({ type, created_ms: atMs }) => ENDS.includes(type) && atMs >= began.created_ms);
  return { fromMs: countsFrom(began), untilMs: (ended === undefined ? nowMs : countsFrom(ended)) - MOVE_MS_MAX };
}

/** The time from which the event counts for billing. */
function countsFrom({ data, created_ms: createdMs }: EventRow): number {
  const sinceMs = data['since_ms'];
  return typeof sinceMs === 'number' ? sinceMs : createdMs;
}

async function reasonsOf(query: Query, subjectId: string, journal: readonly EventRow[]): Promise<Span[]> {
  const free = (await freeTimesOf(query, subjectId)).map(({ from_ms: fromMs, ended_ms: endedMs }) => ({
    fromMs,
    untilMs: endedMs ?? Number.POSITIVE_INFINITY,
  }));
  const disputed = (await disputesOf(query, subjectId))
    .filter(({ state }) => state === 'refunded')
    .map(({ since_ms: fromMs, resolved_ms: resolvedMs }) => ({ fromMs, untilMs: resolvedMs ?? fromMs }));
  return [...free, ...disputed, ...brokenIn(journal), ...(await clockSteps(query))];
}

function brokenIn(journal: readonly EventRow[]): Span[] {
  return journal.flatMap(({ type, created_ms: fromMs }, at) => {
    if (type !== 'instance.gpu_broken') return [];
    const mended = journal.slice(at).find((event) => event.type === 'instance.gpu_mended');
    return [{ fromMs, untilMs: mended?.created_ms ?? Number.POSITIVE_INFINITY }];
  });
}
