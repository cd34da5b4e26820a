// Pure: what a customer may be charged for a rental and what its supplier must earn, from what the world itself has seen (specification 2.2
// and 3.1, DESIGN section 7). Nothing here uses the product's own counting.
import { lengthMs, overlap, type Span, union, without } from './spans.ts';
import type { Rental } from './rentals.ts';

/** The facts of the world that decide about one instance. */
export interface Seen {
  /** The spans in which its endpoint may have worked. It did not work at other times. */
  run: Span[];
  /** The spans in which its endpoint worked. */
  goodEndpoint: Span[];
  /** The spans in which its container ran. */
  container: Span[];
  planeUp: Span[];
  /** The spans in which two hosts had the identity of its host. Reports of a host do not count from then on, until the operator clears it. */
  copies: Span[];
  /** The spans in which the control plane was gone. */
  absences: readonly Span[];
  /** The largest number of machines that failed at the same time as this one, itself included, during the given stretch. */
  failingWith(outage: Span): number;
  /** The time at which the customer's DELETE was accepted; Infinity before. */
  askedToEndMs: number;
  /** The runtime limit that it was launched with; Infinity without one. */
  limitMs: number;
  nowMs: number;
}

/** A second between two ticks of the watch, and the time of one probe. */
const ROUND_MS = 2_000;
/** The longest time between two regular probes, which come every 30 s +- 20 %. */
const PROBE_EVERY_MS = 36_000 + ROUND_MS;
const PROBE_MS = 5_000;
/** A rental starts only if a probe has succeeded at most this long before. */
const REACHED_MS = 10_000;
/** Time between two probes while an instance fails. */
const AGAIN_MS = 2_000;
/** Twenty seconds of failures, of which the last probe may take its longest time, and two failures and a repair before them. */
const CONFIRM_MS = 20_000 + 10_000 + 2 * (PROBE_MS + AGAIN_MS + ROUND_MS);
const QUIET_AFTER_START_MS = 120_000;
/** How many machines must fail at once for a verdict to be held, and how long it is held at most. */
const TOGETHER_MACHINES = 5;
const TOGETHER_HOLD_MS = 10 * 60_000;
/** Only longer own outages are credited; the beat is written this often. */
const OWN_OUTAGE_MS = 60_000;
const BEAT_EVERY_MS = 11_000;
/** Time from the start of the process to its first beat. */
const START_MS = 5_000;
/** The longest time until a link is there again once nothing blocks it: silence, a try that has begun before, and the wait for the next. */
const LINK_BACK_MS = 35_000 + 10_000 + 15_000;
/** Two good probes end an outage. */
const RECOVER_MS = LINK_BACK_MS + 2 * (PROBE_MS + AGAIN_MS + ROUND_MS);
/**
 * A container that is gone is reported every 30 s +- 20 %, and at once if the engine can be asked; engines are away for 200 s at most. An engine that
 * lists nothing after a boot is not believed. Then the holder lets people in for two minutes, and for two more if another agent starts.
 */
const CONTAINER_GONE_MS = 200_000 + 36_000 + LINK_BACK_MS + 120_000;
const GRACE_MS = 30 * 60_000;

export interface Bounds {
  /** Time that is charged: at least, at most. */
  chargedMs: readonly [number, number];
  /** Time that the platform pays the supplier for: at least, at most. */
  ownOutageMs: readonly [number, number];
  broken: string[];
}

export function boundsOf(rental: Rental, seen: Seen): Bounds {
  const running = overlap(rental.running, [[rental.readyMs, Math.min(seen.nowMs, rental.readyMs + seen.limitMs)]]);
  const sure = seen.absences.filter(([fromMs, untilMs]) => untilMs - fromMs > OWN_OUTAGE_MS);
  const perhaps = seen.absences.flatMap(([fromMs, untilMs]): Span[] =>
    untilMs - fromMs > OWN_OUTAGE_MS - BEAT_EVERY_MS ? [[fromMs - BEAT_EVERY_MS, untilMs + START_MS]] : [],
  );
  const alive = without(running, rental.dead);
  const most = without(alive, sure);
  const least = without(alive, perhaps);
  return {
    chargedMs: [lengthMs(least), lengthMs(most)],
    ownOutageMs: [lengthMs(overlap(alive, sure)), lengthMs(overlap(running, perhaps))],
    broken: [
      ...brokenStart(rental, seen),
      ...brokenEnd(rental, seen),
      ...chargedWhileDead(rental, seen, most),
      ...deadWhileAlive(rental, seen),
      ...notCharged(rental, seen, least),
    ],
  };
}

/** A probe may succeed while the container still starts, so the endpoint must have worked shortly before the start, not at that moment. */
function brokenStart({ readyMs, id }: Rental, { run, container, planeUp, copies }: Seen): string[] {
  if (copies.some(([fromMs]) => fromMs <= readyMs)) return [];
  // The end of a container is reported later if its engine does not answer.
  const ran = union(container.map(([fromMs, untilMs]) => [fromMs, untilMs + CONTAINER_GONE_MS]));
  const isRunning = ran.some(([fromMs, untilMs]) => fromMs <= readyMs && readyMs <= untilMs);
  const wasReached = overlap(run, planeUp).some(
    ([fromMs, untilMs]) => fromMs <= readyMs && readyMs <= untilMs + REACHED_MS + ROUND_MS,
  );
  return isRunning && wasReached ? [] : [`${id} was said to run when nobody could get in`];
}

function brokenEnd(rental: Rental, { askedToEndMs, goodEndpoint, planeUp, copies }: Seen): string[] {
  const { id, endMs, running } = rental;
  const lastMs = running.at(-1)?.[1] ?? 0;
  const broken = lastMs > askedToEndMs ? [`${id} ran on after its customer had ended it`] : [];
  const good = overlap(overlap(goodEndpoint, planeUp), [[endMs - GRACE_MS, endMs]]);
  const wasBack = good.some(([fromMs, untilMs]) => untilMs - fromMs > RECOVER_MS);
  // The rental may have run on a copy. The host itself then reports that it does not have the container.
  if (rental.givenUp && wasBack && copies.length === 0)
    broken.push(`${id} was given up though it was back within the grace`);
  return broken;
}

/** An outage that lasts long enough to be found is charged up to the last answer of its host before the first probe that could fail. */
function chargedWhileDead(rental: Rental, seen: Seen, charged: readonly Span[]): string[] {
  const outages = without([[rental.readyMs, Math.min(rental.endMs, seen.nowMs)]], seen.run).flatMap(
    (outage): string[] => {
      const [fromMs, untilMs] = outage;
      const heldMs = seen.failingWith(outage) >= TOGETHER_MACHINES ? TOGETHER_HOLD_MS : 0;
      const isFound = seen.planeUp.some(([upMs, downMs]) => {
        const doubtedMs = Math.max(fromMs + PROBE_EVERY_MS, upMs + QUIET_AFTER_START_MS);
        return doubtedMs + CONFIRM_MS + heldMs < Math.min(untilMs, downMs);
      });
      const chargedMs = lengthMs(overlap(charged, [outage]));
      if (!isFound || chargedMs <= PROBE_EVERY_MS + PROBE_MS) return [];
      return [`${rental.id} is charged for ${chargedMs} ms of an outage from ${at(fromMs)} to ${at(untilMs)}`];
    },
  );
  const idle = without([[rental.readyMs, Math.min(rental.endMs, seen.nowMs)]], seen.container).flatMap(
    (gone): string[] => {
      const chargedMs = lengthMs(overlap(charged, [gone]));
      if (chargedMs <= CONTAINER_GONE_MS || seen.copies.length > 0) return [];
      return [`${rental.id} is charged for ${chargedMs} ms without a container, from ${at(gone[0])} to ${at(gone[1])}`];
    },
  );
  return [...outages, ...idle];
}

/** An instance whose endpoint works must not become unreachable. */
function deadWhileAlive(rental: Rental, seen: Seen): string[] {
  const worked = overlap(seen.goodEndpoint, seen.planeUp);
  return rental.dead.flatMap(([fromMs]) => {
    // The journal names the same time for the end of a rental at its limit, if that end is noted a moment later.
    if (fromMs === rental.readyMs + seen.limitMs) return [];
    // The last proof of life may be as old as the longest time between two good probes.
    const isExplained = without([[fromMs - LINK_BACK_MS, fromMs + PROBE_EVERY_MS + PROBE_MS]], worked).length > 0;
    return isExplained ? [] : [`${rental.id} was unreachable from ${at(fromMs)} on, and its endpoint worked`];
  });
}

/** A usable instance is charged, except for the time until its recovery is detected. */
function notCharged(rental: Rental, seen: Seen, charged: readonly Span[]): string[] {
  const rented: Span[] = [[rental.readyMs, Math.min(rental.endMs, seen.nowMs)]];
  const away = seen.absences.map(([fromMs, untilMs]): Span => [fromMs - BEAT_EVERY_MS, untilMs]);
  const used = without(overlap(overlap(overlap(seen.goodEndpoint, seen.container), seen.planeUp), rented), union(away));
  return used.flatMap((span) => {
    const freeMs = lengthMs([span]) - lengthMs(overlap(charged, [span]));
    if (freeMs <= RECOVER_MS) return [];
    return [`${rental.id} worked from ${at(span[0])} to ${at(span[1])}, and ${freeMs} ms of that are not charged`];
  });
}

function at(ms: number): string {
  return Number.isFinite(ms) ? new Date(ms).toISOString() : String(ms);
}
