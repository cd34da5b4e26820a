// Our own outages: a row that says when the control plane was last alive, and the credit for the time in which it was not.
import { z } from 'zod';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { int } from '../../base/db/columns.ts';
import { type Db, type Query, type Tx, sql } from '../../base/db/db.ts';
import type { Metering } from '../../money/metering/metering.ts';
import { findInstance } from '../instances/store.ts';

export const BEAT_PERIOD_MS = 10_000;
/** A restart takes less; above it, nobody could have reached an instance or ended it. */
export const OWN_OUTAGE_MS_MIN = 60_000;

/** Clocks of hosts are slewed; only somebody who sets one makes it go so much faster or slower between two beats. */
const CLOCK_STEP_MS_MIN = 5_000;

export interface OwnOutages {
  /**
   * Says that we are alive. If we did not for more than OWN_OUTAGE_MS_MIN, nobody is charged for the time since, and suppliers are paid for it
   * by us (DESIGN section 7). Within one process the monotonic clock measures that: a wall clock that is set pays nobody. Across a restart
   * the wall clock tells, within the bounds of money/credits. If it dies half way and is repeated, the row still tells of the whole absence.
   * Loops that call it at the same moment share one run. Resolves with whether we were away for so long.
   */
  beat(): Promise<boolean>;
  /** How often the wall clock was set since the start of this process. */
  clockSteps(): number;
}

const BeatRow = z.object({ beat_ms: int });

interface OwnOutagesDeps {
  db: Db;
  clock: Clock;
  log: Log;
  metering: Pick<Metering, 'creditOwnOutage' | 'skipAll'>;
}

/** A moment on both clocks. */
interface Moment {
  wallMs: number;
  monotonicMs: number;
}

export function openOwnOutages(deps: OwnOutagesDeps): OwnOutages {
  const { db, clock } = deps;
  let last: Moment | undefined;
  let steps = 0;
  let underWay: Promise<boolean> | undefined;

  const beat = async (): Promise<boolean> => {
    const now = { wallMs: clock.now(), monotonicMs: clock.monotonicMs() };
    const awayMs = last === undefined ? undefined : now.monotonicMs - last.monotonicMs;
    const driftMs = last === undefined || awayMs === undefined ? 0 : Math.round(now.wallMs - last.wallMs - awayMs);
    const stepMs = Math.abs(driftMs) > CLOCK_STEP_MS_MIN ? driftMs : 0;
    // The old clock counts: what the new one jumped over never was, so it is no absence.
    const wasAway = await excuse({ awayMs, untilMs: now.wallMs - stepMs }, deps);
    if (stepMs !== 0) await noteStep(now.wallMs, stepMs, deps);
    if (stepMs !== 0) steps += 1;
    const written = { wallMs: clock.now(), monotonicMs: clock.monotonicMs() };
    await db.tx('edge.ownOutages', (tx) => write(tx, written.wallMs));
    last = written;
    return wasAway;
  };

  return {
    beat: () => (underWay ??= beat().finally(() => (underWay = undefined))),
    clockSteps: () => steps,
  };
}

async function noteStep(nowMs: number, stepMs: number, { log, metering }: OwnOutagesDeps): Promise<void> {
  const seconds = Math.round(stepMs / 1000);
  log.error(
    { seconds },
    'the wall clock of this host was set: nobody is charged or paid for that; see its time service',
  );
  // A clock that was set back is behind what is posted: nothing is charged until it has caught up.
  if (stepMs < 0) return;
  const evidence = `the wall clock of the control plane was set forward by ${seconds} s`;
  await metering.skipAll({ fromMs: nowMs - stepMs, untilMs: nowMs, evidence });
}

/** Credits the time since the last beat if it was an absence. `awayMs` is undefined for the first beat of a process. Whether it was. */
async function excuse(
  { awayMs, untilMs }: { awayMs: number | undefined; untilMs: number },
  { db, log, metering }: OwnOutagesDeps,
): Promise<boolean> {
  const row = await db.read.one(BeatRow, sql`select beat_ms from heartbeats where id = 1`);
  if (row === undefined) return false;
  const fromMs = row.beat_ms;
  if ((awayMs ?? untilMs - fromMs) <= OWN_OUTAGE_MS_MIN) return false;
  const [from, until] = [isoTime(fromMs), isoTime(untilMs)];
  const evidence = `the control plane was away from ${from} to ${until}`;
  const rentals = await metering.creditOwnOutage({ fromMs, untilMs, evidence, limitOf });
  log.error({ from, until, rentals }, 'we were away: this time is credited to customers and paid to suppliers');
  return true;
}

async function limitOf(query: Query, instanceId: string): Promise<number | null> {
  return (await findInstance(query, instanceId))?.auto_terminate_ms ?? null;
}

async function write(tx: Tx, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into heartbeats (id, beat_ms) values (1, ${nowMs}) on conflict (id) do update set beat_ms = excluded.beat_ms`,
  );
}
