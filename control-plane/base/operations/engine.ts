// The engine that drives due rows of all rooms: it asks each driver for due rows and drives each row, on a period and on a nudge.
import type { Clock } from '../../../shared/clock.ts';
import { fullJitterMs } from '../../../shared/backoff.ts';
import type { Log } from '../../../shared/log.ts';
import { type Loop, startLoop } from '../../../shared/loop.ts';
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

export function startEngine(drivers: Driver[], deps: { clock: Clock; log: Log; rng: Rng }): Engine {
  const { clock, log, rng } = deps;
  const inFlight = new Map<string, Promise<void>>();
  const troubles = new Map<string, Trouble>();
  const driven = new Map(drivers.map(({ name }) => [name, 0]));
  const stopping = new AbortController();

  const driveOne = async (driver: Driver, id: string, key: string): Promise<void> => {
    try {
      await driver.drive(id, stopping.signal);
      troubles.delete(key);
      driven.set(driver.name, (driven.get(driver.name) ?? 0) + 1);
    } catch (error) {
      const failures = (troubles.get(key)?.failures ?? 0) + 1;
      const waitMs = fullJitterMs(failures, RETRY_MS_MIN, RETRY_MS_MAX, rng);
      troubles.set(key, { failures, notBeforeMs: clock.monotonicMs() + waitMs });
      log.error(
        { driver: driver.name, id, failures, retry_in_ms: waitMs, err: error },
        'driving a row failed; it will be retried',
      );
    }
  };

  /** Otherwise each row that failed and then stopped being due would make all queries for due rows larger for ever. */
  const forgetOldTroubles = (): void => {
    const untilMs = clock.monotonicMs() - TROUBLE_KEEP_MS;
    for (const [key, { notBeforeMs }] of troubles)
      if (notBeforeMs <= untilMs && !inFlight.has(key)) troubles.delete(key);
  };

  const loop = startLoop(
    {
      name: 'engine',
      periodMs: PERIOD_MS,
      run: async () => {
        forgetOldTroubles();
        for (const driver of drivers) {
          const atWork = [...inFlight.keys()].filter((key) => key.startsWith(`${driver.name}/`)).length;
          if (atWork >= IN_FLIGHT_MAX) continue;
          // Some due rows are in progress or waiting for a retry, so this asks for more rows than can be started.
          const ids = await driver.due(clock.now(), IN_FLIGHT_MAX + troubles.size);
          const mayStart = (id: string): boolean => {
            const key = `${driver.name}/${id}`;
            return !inFlight.has(key) && (troubles.get(key)?.notBeforeMs ?? 0) <= clock.monotonicMs();
          };
          for (const id of [...new Set(ids)].filter(mayStart).slice(0, IN_FLIGHT_MAX - atWork)) {
            const key = `${driver.name}/${id}`;
            const work = driveOne(driver, id, key).finally(() => {
              inFlight.delete(key);
              if (!stopping.signal.aborted) loop.nudge();
            });
            inFlight.set(key, work);
          }
        }
      },
    },
    { clock, log },
  );

  return {
    nudge: () => loop.nudge(),
    driven: () => driven,
    loop,
    stop: async () => {
      stopping.abort();
      await loop.stop();
      await Promise.all(inFlight.values());
    },
  };
}
