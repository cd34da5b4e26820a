// The loops of the house: the engine, the loops of the rooms, retention, and the watchdog.
import type { Clock } from '../shared/clock.ts';
import { throwAll } from '../shared/errors.ts';
import type { Log } from '../shared/log.ts';
import { type Loop, startLoop } from '../shared/loop.ts';
import { DbError, isDatabaseAway } from './base/db/db.ts';
import type { Forgets } from './base/db/pieces.ts';
import { writeRow } from './base/db/readiness.ts';
import { type Engine, startEngine } from './base/operations/engine.ts';
import { hangingLoops, type Systemd } from './base/systemd/systemd.ts';
import { type Brings, brought, type RoomLoop } from './brings.ts';
import type { Core } from './settings.ts';

const FORGET_PERIOD_MS = 3_600_000;
/** Time limit of one tick, far less than a tick that counts as hanging. The next tick continues. */
const FORGET_MS_BUDGET = 60_000;

export interface Running {
  /** Drives rows that are due; undefined in a secondary. */
  engine: Engine | undefined;
  loops: { endsBeforeDrain: boolean; loop: Loop }[];
}

/** A secondary has no engine, and only those loops that run in each control plane. */
export function startLoops(core: Core, brings: readonly Brings[], as: 'primary' | 'secondary'): Running {
  const start = ({ endsBeforeDrain = false, ...options }: RoomLoop): Running['loops'][number] => ({
    endsBeforeDrain,
    loop: startLoop(options, { ...core, isReported: isDatabaseAway }),
  });
  const loops = brought(brings, 'loops');
  if (as === 'secondary')
    return { engine: undefined, loops: loops.filter(({ everywhere = false }) => everywhere).map(start) };
  const forgets = brought(brings, 'forgets');
  const purge: RoomLoop = {
    name: 'purge',
    periodMs: FORGET_PERIOD_MS,
    run: (signal) => forgetOld(signal, forgets, core),
  };
  return { engine: startEngine(brought(brings, 'drivers'), core), loops: [...loops, purge].map(start) };
}

export function allLoops({ engine, loops }: Running): Loop[] {
  return [...(engine === undefined ? [] : [engine.loop]), ...loops.map(({ loop }) => loop)];
}

/** Resolves when the last run is over. */
export async function stopLoops({ engine, loops }: Running): Promise<void> {
  await Promise.all(loops.map(({ loop }) => loop.stop()));
  await engine?.stop();
}

/**
 * Closes the rooms in reverse order. Work in progress ends while the API and the operator's socket close. What fails keeps nothing else from closing,
 * because other rooms store what only their memory has. @throws what has failed
 */
export async function closeRooms(
  brings: readonly Brings[],
  running: Running | undefined,
  closeSockets: () => Promise<void>,
): Promise<void> {
  const failures: unknown[] = [];
  const note = (error: unknown): void => void failures.push(error);
  for (const room of brings) await room.leave?.().catch(note);
  await Promise.all([closeSockets().catch(note), ...brings.map((room) => room.finish?.().catch(note))]);
  if (running !== undefined) await stopLoops(running);
  for (const room of brings.toReversed()) await room.close?.().catch(note);
  throwAll(failures);
}

/**
 * Deletes what is older than its retention, in pieces, so that no writer waits long. It can be interrupted at any point. Money is never
 * deleted: transfers and segments of metered time have no age limit.
 */
export async function forgetOld(
  stopping: AbortSignal,
  forgets: readonly Forgets[],
  { clock, log }: { clock: Clock; log: Log },
): Promise<void> {
  const spent = new AbortController();
  const cancel = clock.after(FORGET_MS_BUDGET, () => spent.abort());
  const signal = AbortSignal.any([stopping, spent.signal]);
  try {
    const gone: Record<string, number> = {};
    const failures: unknown[] = [];
    // Another room is first in each hour, so that a long backlog of one does not use up the time of all others. For the same reason, what cannot be
    // deleted keeps nothing else from being deleted.
    const turn = Math.floor(clock.now() / FORGET_PERIOD_MS) % Math.max(1, forgets.length);
    for (const { what, run } of [...forgets.slice(turn), ...forgets.slice(0, turn)]) {
      try {
        gone[what] = await run(signal);
      } catch (error) {
        gone[what] = 0;
        failures.push(error);
      }
    }
    log.debug(gone, 'old rows were deleted');
    throwAll(failures);
  } finally {
    cancel();
  }
}

/** Reports to the service manager that the process is alive, while no loop hangs and the database commits a row. */
export function startWatchdog(
  core: Core,
  running: Running,
  systemd: Pick<Systemd, 'alive'> & { alivePeriodMs: number },
): void {
  const run = async (): Promise<void> => {
    const hanging = hangingLoops(allLoops(running));
    if (hanging.length > 0) throw new Error(`these loops hang: ${hanging.join(', ')}`);
    // A restart would not free a full disk. So a process whose only fault is a full disk counts as alive.
    await writeRow(core.db, core.clock).catch((error: unknown) => {
      if (!(error instanceof DbError) || error.code !== 'disk_full') throw error;
    });
    await systemd.alive();
  };
  const loop = startLoop(
    { name: 'watchdog', periodMs: systemd.alivePeriodMs, run },
    { ...core, isReported: isDatabaseAway },
  );
  running.loops.push({ endsBeforeDrain: false, loop });
}
