// Whether the wall clocks of this process and of the primary agree. Each answer of the primary has its time, so nobody has to ask for it.
import type { IncomingHttpHeaders } from 'node:http';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Peer } from './peers.ts';

export interface ClockDifference {
  /** Logs once that the clocks differ, and once that they agree again. The answer has just arrived. */
  look(headers: Pick<IncomingHttpHeaders, 'date'>, primary: Peer): void;
}

/** An event is looked for in the live stream for 15 seconds. The time of an answer has whole seconds, and an answer takes some time. */
const DIFFERENCE_MS_MAX = 10_000;
/** Clocks that have differed agree again below this. Otherwise a difference at the limit would be logged again and again. */
const AGREEING_MS_MAX = 5_000;

const DIFFER =
  'the wall clocks of this control plane and of the primary differ, so events of one of them may not reach the live streams of the other: start a time service on both hosts, such as chrony';

export function openClockDifference({ clock, log }: { clock: Pick<Clock, 'now'>; log: Log }): ClockDifference {
  let differs = false;
  return {
    look: ({ date = '' }, { url }) => {
      const aheadMs = Date.parse(date) - clock.now();
      const allowedMs = differs ? AGREEING_MS_MAX : DIFFERENCE_MS_MAX;
      if (Number.isNaN(aheadMs) || Math.abs(aheadMs) > allowedMs === differs) return;
      differs = !differs;
      const fields = { primary: url, primary_ahead_seconds: Math.round(aheadMs / 1000) };
      if (differs) log.warn(fields, DIFFER);
      else log.info(fields, 'the wall clocks of this control plane and of the primary agree again');
    },
  };
}
