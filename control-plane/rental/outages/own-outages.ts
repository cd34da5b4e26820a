// Our own outages: a row says when the control plane was last alive, and the time in which it was not alive is credited.
import { z } from 'zod';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { int } from '../../base/db/columns.ts';
import { type Db, type Query, type Tx, sql } from '../../base/db/db.ts';
import type { Metering, SkippedStep } from '../../money/metering/metering.ts';
import type { ClockStep } from '../instances/clock-steps.ts';
import { OWN_OUTAGE_MS_MIN } from '../instances/quiet.ts';

export const BEAT_PERIOD_MS = 10_000;

/** Time services change a clock slowly. A larger difference between two beats means that somebody has set the clock. */
const CLOCK_STEP_MS_MIN = 5_000;

export interface OwnOutages {
  /**
   * Records that the control plane is alive. If the last beat is older than OWN_OUTAGE_MS_MIN, the time since then is credited to customers and
   * paid to suppliers by us (DESIGN section 7). Within one process the monotonic clock measures the gap, so nobody is paid if the wall clock is
   * set. Across a restart the wall clock measures it, within the bounds of money/credits. If the process dies half way, the row is unchanged, and
   * the next beat credits the whole gap. Calls at the same moment share one beat.
   * Resolves with true if there was an own outage.
   */
  beat(): Promise<boolean>;
  /** How often the wall clock was set since this process started. */
  clockSteps(): number;
}

const BeatRow = z.object({ beat_ms: int });

interface OwnOutagesDeps {
  db: Db;
  clock: Clock;
  log: Log;
  metering: Pick<Metering, 'creditOwnOutage' | 'skipAll'>;
  /** Takes a step off the time of fine-tuning jobs. A repeat of the same step must change nothing. */
  skipJobs(step: SkippedStep): Promise<void>;
  /** All instances whose probes are timed in memory had a good probe then or later; null if this process knows nothing about that. */
  goodSinceMs(): number | null;
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
  /** Steps forward that are still charged. If the database fails, the next beat tries again. */
  const unskipped: SkippedStep[] = [];
  let underWay: Promise<boolean> | undefined;

  const beat = async (): Promise<boolean> => {
    const now = { wallMs: clock.now(), monotonicMs: clock.monotonicMs() };
    const awayMs = last === undefined ? undefined : now.monotonicMs - last.monotonicMs;
    const driftMs = last === undefined || awayMs === undefined ? 0 : Math.round(now.wallMs - last.wallMs - awayMs);
    const stepMs = Math.abs(driftMs) > CLOCK_STEP_MS_MIN ? driftMs : 0;
    // Measured without the step: the time that the clock jumped over did not pass, so it is no outage.
    const wasAway = await creditGap({ awayMs, untilMs: now.wallMs - stepMs }, deps);
    if (stepMs !== 0) {
      steps += 1;
      unskipped.push(...skippedStep(now.wallMs, stepMs, deps));
      // This step is measured, also if the beat fails from here on.
      last = now;
    }
    for (let step = unskipped[0]; step !== undefined; step = unskipped[0]) {
      await skip(step, deps);
      unskipped.shift();
    }
    const written = { wallMs: clock.now(), monotonicMs: clock.monotonicMs() };
    await db.tx('outages.own', (tx) => write(tx, written.wallMs, deps.goodSinceMs()));
    last = written;
    return wasAway;
  };

  return {
    beat: () => {
      underWay ??= beat().finally(() => (underWay = undefined));
      return underWay;
    },
    clockSteps: () => steps,
  };
}

/** The time to skip, if the clock was set forward. */
function skippedStep(nowMs: number, stepMs: number, { log }: OwnOutagesDeps): SkippedStep[] {
  const seconds = Math.round(stepMs / 1000);
  log.error(
    { seconds },
    'the wall clock of this host was set: nobody is charged or paid for that time; check its time service',
  );
  // If the clock was set back, charges are posted for later times already. Nothing is charged until the clock has caught up.
  if (stepMs < 0) return [];
  const evidence = `the wall clock of the control plane was set forward by ${seconds} s`;
  return [{ fromMs: nowMs - stepMs, untilMs: nowMs, evidence }];
}

async function skip(step: SkippedStep, { db, clock, metering, skipJobs }: OwnOutagesDeps): Promise<void> {
  // The row comes first, so that no rental is cut without it. A rental that ends meanwhile is cut up to its own end.
  await writeStep(db, step);
  await skipJobs(step);
  await metering.skipAll(step, () => writeStep(db, { ...step, untilMs: clock.now() }));
}

async function writeStep(db: Db, { fromMs, untilMs }: Omit<SkippedStep, 'evidence'>): Promise<void> {
  await db.tx('outages.clock_step', (tx) =>
    tx.run(
      sql`insert into clock_steps (from_ms, until_ms) values (${fromMs}, ${untilMs})
          on conflict (from_ms) do update set until_ms = excluded.until_ms`,
    ),
  );
}

/**
 * Credits the time since the last beat if it was an own outage, and returns whether it was. `awayMs` is undefined at the first beat of a process.
 */
async function creditGap(
  { awayMs, untilMs }: { awayMs: number | undefined; untilMs: number },
  { db, log, metering }: OwnOutagesDeps,
): Promise<boolean> {
  const row = await db.read.one(BeatRow, sql`select beat_ms from heartbeats where id = 1`);
  if (row === undefined) return false;
  const fromMs = row.beat_ms;
  if ((awayMs ?? untilMs - fromMs) <= OWN_OUTAGE_MS_MIN) return false;
  const [from, until] = [isoTime(fromMs), isoTime(untilMs)];
  const evidence = `the control plane was away from ${from} to ${until}`;
  const rentals = await metering.creditOwnOutage({ fromMs, untilMs, evidence });
  const fields = { from, until, rentals };
  if (rentals === 0) log.info(fields, 'the control plane was away, and no rental was running');
  else log.error(fields, 'the control plane was away: this time is credited to customers and paid to suppliers');
  return true;
}

async function write(tx: Tx, nowMs: number, goodSinceMs: number | null): Promise<void> {
  await tx.run(
    sql`insert into heartbeats (id, beat_ms, good_since_ms) values (1, ${nowMs}, ${goodSinceMs})
        on conflict (id) do update set beat_ms = excluded.beat_ms,
          good_since_ms = coalesce(excluded.good_since_ms, heartbeats.good_since_ms)`,
  );
}

const GoodSinceRow = z.object({ good_since_ms: int.nullable() });

/** Reads the bound that the last beat has stored; 0 if no beat has stored one. */
export async function storedGoodSinceMs(query: Query): Promise<number> {
  const row = await query.one(GoodSinceRow, sql`select good_since_ms from heartbeats where id = 1`);
  return row?.good_since_ms ?? 0;
}

const StepRow = z.object({ from_ms: int, until_ms: int });

/** The times that never passed, because the wall clock was set forward over them. */
export async function clockSteps(query: Query): Promise<ClockStep[]> {
  const rows = await query.all(StepRow, sql`select from_ms, until_ms from clock_steps order by from_ms`);
  return rows.map(({ from_ms: fromMs, until_ms: untilMs }) => ({ fromMs, untilMs }));
}
