// The one engine that drives due rows: asks every room what is due, drives each row once at a time, comes back on a period and on a nudge.
import type { Clock } from '../../../shared/clock.ts';
import { fullJitterMs } from '../../../shared/backoff.ts';
import type { Log } from '../../../shared/log.ts';
import { type Loop, startLoop } from '../../../shared/loop.ts';
import type { Rng } from '../../../shared/rng.ts';

const PERIOD_MS = 1_000;
/** Rows of one driver in work at once: enough to hide network waits, few enough for two cores. */
const IN_FLIGHT_MAX = 64;
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 30_000;

/** A kind of row that wants driving. `drive` loads the facts afresh, plans, performs, applies; it must tolerate being called for nothing. */
export interface Driver {
  name: string;
  due(nowMs: number, limit: number): Promise<string[]>;
  drive(id: string, signal: AbortSignal): Promise<void>;
}

export interface Engine {
  nudge(): void;
  /** Waits for the rows that are being driven. */
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
  const stopping = new AbortController();

  const driveOne = async (driver: Driver, id: string, key: string): Promise<void> => {
    try {
      await driver.drive(id, stopping.signal);
      troubles.delete(key);
    } catch (error) {
      const failures = (troubles.get(key)?.failures ?? 0) + 1;
      const waitMs = fullJitterMs(failures, RETRY_MS_MIN, RETRY_MS_MAX, rng);
      troubles.set(key, { failures, notBeforeMs: clock.monotonicMs() + waitMs });
      log.error(
        { driver: driver.name, id, failures, retry_in_ms: waitMs, err: error },
        'driving a row failed; it is tried again',
      );
    }
  };

  const loop = startLoop(
    {
      name: 'engine',
      periodMs: PERIOD_MS,
      run: async () => {
        for (const driver of drivers) {
          const free = IN_FLIGHT_MAX - inFlight.size;
          if (free <= 0) return;
          // Rows in flight or in trouble may still be due, so ask for more than there is room for.
          const ids = await driver.due(clock.now(), free + inFlight.size + troubles.size);
          for (const id of ids) {
            const key = `${driver.name}/${id}`;
            if (inFlight.has(key) || inFlight.size >= IN_FLIGHT_MAX) continue;
            if ((troubles.get(key)?.notBeforeMs ?? 0) > clock.monotonicMs()) continue;
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
    loop,
    stop: async () => {
      stopping.abort();
      await loop.stop();
      await Promise.all(inFlight.values());
    },
  };
}
