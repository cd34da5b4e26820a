// The one way to repeat work: a loop runs periodically and on a nudge, takes no input, never runs twice at once, and shows its status.
import type { Clock } from './clock.ts';
import { messageOf } from './errors.ts';
import type { Log } from './log.ts';

/** What an operator sees of a loop. Times are epoch ms on the wall clock as it is set now: a step of that clock moves them too. */
export interface LoopStatus {
  name: string;
  period_ms: number;
  running: boolean;
  runs: number;
  last_started_ms: number | null;
  last_duration_ms: number | null;
  /** When a run last ended without an error. */
  last_success_ms: number | null;
  last_error: string | null;
}

export interface Loop {
  /** Asks for a run soon. Any number of nudges during a run leads to exactly one more run after it. */
  nudge(): void;
  /** Prevents further runs; resolves when the current one is over. */
  stop(): Promise<void>;
  status(): LoopStatus;
  /** How long the current run has lasted, whatever happened to the wall clock since; null between two runs. */
  runningMs(): number | null;
}

export interface LoopOptions {
  name: string;
  periodMs: number;
  /** The shortest time between two runs. For a loop whose run is expensive and that gets many nudges; 0 if left out. */
  gapMs?: number;
  /**
   * The pause after a run is also this many times as long as the run took, but at most a period. So a run that grows with the fleet takes a
   * bounded part of the time.
   */
  gapOfRun?: number;
  /**
   * Reads the state and does all work that is due. A throw is logged, and the next period tries again. If it resolves with `again`, there
   * is more to do and the next run follows at once.
   */
  run(signal: AbortSignal): Promise<'again' | void>;
}

/** The reason of an abort. Without one, each nudge would create an error with a stack. */
const WOKEN = 'woken';

export interface LoopDeps {
  clock: Clock;
  log: Log;
  /** True for an error whose cause is logged elsewhere, once for all loops. The status shows it, but there is no line for each run. */
  isReported?: (error: unknown) => boolean;
}

/** The first run begins at once, because a previous process may have left work. */
export function startLoop(options: LoopOptions, deps: LoopDeps): Loop {
  const { clock, log, isReported = () => false } = deps;
  const stopping = new AbortController();
  const status: Omit<LoopStatus, 'last_started_ms' | 'last_success_ms'> = {
    name: options.name,
    period_ms: options.periodMs,
    running: false,
    runs: 0,
    last_duration_ms: null,
    last_error: null,
  };
  let nudged = false;
  let wake = new AbortController();
  let startedMs = clock.monotonicMs();
  let successMs: number | undefined;
  const onWallClock = (atMs: number): number => Math.round(clock.now() - (clock.monotonicMs() - atMs));

  const runOnce = async (): Promise<void> => {
    startedMs = clock.monotonicMs();
    status.running = true;
    try {
      if ((await options.run(stopping.signal)) === 'again') nudged = true;
      status.last_error = null;
      successMs = clock.monotonicMs();
    } catch (error) {
      status.last_error = messageOf(error);
      if (!isReported(error))
        log.error({ loop: options.name, err: error }, 'a loop run failed; the next period tries again');
    }
    status.running = false;
    status.runs += 1;
    status.last_duration_ms = Math.round(clock.monotonicMs() - startedMs);
  };

  const forever = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      nudged = false;
      await runOnce();
      const gapMs = gapAfter(options, status.last_duration_ms ?? 0);
      if (gapMs > 0) await clock.sleep(gapMs, stopping.signal);
      if (nudged || stopping.signal.aborted) continue;
      wake = new AbortController();
      await clock.sleep(options.periodMs, wake.signal);
    }
  };
  const finished = forever();

  return {
    nudge: () => {
      nudged = true;
      wake.abort(WOKEN);
    },
    stop: async () => {
      stopping.abort();
      wake.abort(WOKEN);
      await finished;
    },
    status: () => ({
      ...status,
      last_started_ms: onWallClock(startedMs),
      last_success_ms: successMs === undefined ? null : onWallClock(successMs),
    }),
    runningMs: () => (status.running ? clock.monotonicMs() - startedMs : null),
  };
}

function gapAfter({ gapMs = 0, gapOfRun = 0, periodMs }: LoopOptions, durationMs: number): number {
  return Math.max(gapMs, Math.min(gapOfRun * durationMs, periodMs));
}
