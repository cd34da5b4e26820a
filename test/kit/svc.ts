// The command `svc` in this process: its output, its exit code and the programs that it would start.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openLogins } from '../../control-plane/cli/config.ts';
import type { SvcDeps } from '../../control-plane/cli/command.ts';
import { runSvc } from '../../control-plane/cli/svc.ts';
import type { Clock } from '../../shared/clock.ts';
import { createIds } from '../../shared/ids.ts';
import { seededRng } from '../../shared/rng.ts';

export interface SvcResult {
  code: number;
  stdout: string;
  stderr: string;
}

export interface Svc {
  run(...argv: string[]): Promise<SvcResult>;
  /** Programs that it has started, with their arguments. */
  readonly programs: string[][];
  /** The folder that stands for the home of the user. */
  readonly home: string;
  interrupt(): void;
  close(): void;
}

export interface SvcOptions {
  baseUrl?: string | undefined;
  key?: string | undefined;
  input?: string;
  fetch?: typeof fetch;
  /** Variables of the caller, beside those of `svc` itself. */
  env?: Record<string, string>;
  /** Exit code of the programs that it starts. */
  programCode?: number;
  /** Time limits are over as soon as the program waits for something else than time. */
  isLate?: boolean;
  /** Called at each wait, for a world that has to go on meanwhile. */
  onSleep?(): Promise<void>;
}

export function openSvc(options: SvcOptions = {}): Svc {
  const home = mkdtempSync(join(tmpdir(), 'svc-'));
  const interrupting = new AbortController();
  const programs: string[][] = [];
  const clock = impatientClock(options);
  const logins = openLogins({ HOME: home, SVC_API_KEY: options.key, SVC_BASE_URL: options.baseUrl });
  return {
    programs,
    home,
    interrupt: () => interrupting.abort(),
    close: () => rmSync(home, { recursive: true }),
    run: async (...argv) => {
      const out: string[] = [];
      const err: string[] = [];
      const deps: Omit<SvcDeps, 'warn'> = {
        logins,
        clock,
        ids: createIds(clock, seededRng(1)),
        fetch: options.fetch ?? fetch,
        print: (text) => void out.push(text),
        tell: (text) => void err.push(text),
        variable: (name) => options.env?.[name],
        readInput: async () => options.input ?? '',
        isTerminal: false,
        interrupted: interrupting.signal,
        goOnUnread: () => undefined,
        runProgram: async (command, args) => {
          programs.push([command, ...args]);
          return options.programCode ?? 0;
        },
      };
      const code = await runSvc(argv, deps);
      return { code, stdout: out.join(''), stderr: err.join('') };
    },
  };
}

/** Time passes only by sleeping, and sleeping takes no time. */
function impatientClock({ onSleep = async () => undefined, isLate = false }: SvcOptions): Clock {
  let ms = Date.UTC(2026, 0, 1);
  const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  return {
    now: () => ms,
    monotonicMs: () => ms,
    nextTurn,
    after: (_ms, run) => {
      if (isLate) setImmediate(run);
      return () => undefined;
    },
    sleep: async (forMs, signal) => {
      if (signal?.aborted === true) return;
      await onSleep();
      await nextTurn();
      ms += forMs;
    },
  };
}
