// The engine that drives due rows of all rooms: it asks each driver for due rows and drives each row, on a period and on a nudge.
import type { Clock } from '../../../shared/clock.ts';
import { throwAll } from '../../../shared/errors.ts';
import { fullJitterMs } from '../../../shared/backoff.ts';
import type { Log } from '../../../shared/log.ts';
import { type Loop, startLoop } from '../../../shared/loop.ts';
import { isDatabaseAway } from '../db/db.ts';
import type { Rng } from '../../../shared/rng.ts';

const PERIOD_MS = 1_000;
/**
 * Limit of rows that one driver handles at once: enough to hide network delays, few enough for two cores. Each driver has places of its own, so
 * that rows that wait for slow hosts do not keep the rows of other rooms waiting.
 */
const IN_FLIGHT_MAX = 64;
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 30_000;
/** If a row is not tried again for this time after its retry came due, it is not due any more. */
const TROUBLE_KEEP_MS = 60_000;

/** A kind of row that must be driven. `drive` loads the facts again, plans, performs and applies. An unnecessary call must be harmless. */
export interface Driver {
  name: string;
  due(nowMs: number, limit: number): Promise<string[]>;
  drive(id: string, signal: AbortSignal): Promise<void>;
}

export interface Engine {
  nudge(): void;
  /** Rows that were driven without a failure since the start, by driver. */
  driven(): ReadonlyMap<string, number>;
  /** Waits for the rows in progress. */
  stop(): Promise<void>;
  loop: Loop;
}

interface Trouble {
  failures: number;
  notBeforeMs: number;
}

/** A driver, and what is known of its rows by their ids. */
interface Lane {
  driver: Driver;
  inFlight: Map<string, Promise<void>>;
  troubles: Map<string, Trouble>;
  driven: number;
}

export function startEngine(drivers: Driver[], deps: { clock: Clock; log: Log; rng: Rng }): Engine {
  const { clock, log, rng } = deps;
  const lanes = drivers.map((driver): Lane => ({ driver, inFlight: new Map(), troubles: new Map(), driven: 0 }));
  const stopping = new AbortController();

  /** Resolves with whether the row was driven. A failure is logged, unless it is that of the database, and the row waits. */
  const driveOne = async ({ driver, troubles }: Lane, id: string): Promise<boolean> => {
    try {
      await driver.drive(id, stopping.signal);
      troubles.delete(id);
      return true;
    } catch (error) {
      const failures = (troubles.get(id)?.failures ?? 0) + 1;
      const waitMs = fullJitterMs(failures, RETRY_MS_MIN, RETRY_MS_MAX, rng);
      troubles.set(id, { failures, notBeforeMs: clock.monotonicMs() + waitMs });
      if (isDatabaseAway(error)) return false;
      log.error(
        { driver: driver.name, id, failures, retry_in_ms: waitMs, err: error },
        'driving a row failed; it will be retried',
      );
      return false;
    }
  };

  /** Forgets rows that have failed and are not due any more. Each of them would make all queries for due rows larger for ever. */
  const forgetOldTroubles = ({ inFlight, troubles }: Lane): void => {
    const untilMs = clock.monotonicMs() - TROUBLE_KEEP_MS;
    for (const [id, { notBeforeMs }] of troubles) if (notBeforeMs <= untilMs && !inFlight.has(id)) troubles.delete(id);
  };

  const startDue = async (lane: Lane): Promise<void> => {
    const { driver, inFlight, troubles } = lane;
    forgetOldTroubles(lane);
    if (inFlight.size >= IN_FLIGHT_MAX) return;
    // Some due rows are in progress or waiting for a retry, so this asks for more rows than can be started.
    for (const id of await driver.due(clock.now(), IN_FLIGHT_MAX + troubles.size)) {
      if (inFlight.has(id) || inFlight.size >= IN_FLIGHT_MAX) continue;
      if ((troubles.get(id)?.notBeforeMs ?? 0) > clock.monotonicMs()) continue;
      const work = driveOne(lane, id).then((isDriven) => {
        if (isDriven) lane.driven += 1;
        inFlight.delete(id);
        if (!stopping.signal.aborted) loop.nudge();
      });
      inFlight.set(id, work);
    }
  };

  const run = async (): Promise<void> => {
    const failures: unknown[] = [];
    // A driver whose due rows cannot be read keeps no row of another driver waiting.
    for (const lane of lanes) await startDue(lane).catch((error: unknown) => failures.push(error));
    throwAll(failures);
  };
  const loop = startLoop({ name: 'engine', periodMs: PERIOD_MS, run }, { clock, log, isReported: isDatabaseAway });

  return {
    nudge: () => loop.nudge(),
    driven: () => new Map(lanes.map(({ driver, driven }) => [driver.name, driven])),
    loop,
    stop: async () => {
      stopping.abort();
      await loop.stop();
      await Promise.all(lanes.flatMap(({ inFlight }) => [...inFlight.values()]));
    },
  };
}
