// State files with a time limit. A disk may hang: each call waits for a dead device or a dead server. The agent must not wait with it.
import type { Clock } from '../../shared/clock.ts';
import type { Log } from '../../shared/log.ts';
import type { StateFiles } from './state.ts';

/** A busy disk flushes a file within this. */
const CALL_MS_MAX = 15_000;
const HANGS = `the disk of the state folder has not answered for ${CALL_MS_MAX / 1000} seconds`;
const REMOVES = `a removal from the state folder takes more than ${CALL_MS_MAX / 1000} seconds, and goes on`;

export interface TimedFiles extends StateFiles {
  /** Why nothing can be stored now; empty if nothing is known against it. */
  fault(): string;
}

/**
 * The same files, but a write or a removal rejects if it takes too long. Until that call has come to an end, further ones of its kind reject at
 * once. Those of a kind run one after another, for two reasons: a late write never replaces a newer one, and a disk that hangs takes few of
 * Node's threads. The inputs of a job may be hundreds of gigabytes, so a long removal says nothing about the disk, and no write waits for it.
 * Reads have no limit: the agent reads at its start only, and must not begin with an empty state because its disk is slow.
 */
export function openTimedFiles(files: StateFiles, { clock, log }: { clock: Clock; log: Log }): TimedFiles {
  const writes = openLine(HANGS, clock, {
    late: () => log.error(`${HANGS}: nothing is stored until it does; rentals, reports and the ends of rentals go on`),
    over: () => log.info('the disk of the state folder answers again'),
  });
  const removals = openLine(REMOVES, clock, {
    late: () => log.info(REMOVES),
    over: () => log.info('the long removal from the state folder is over'),
  });
  return {
    read: files.read,
    list: files.list,
    fault: () => (writes.isLate() ? HANGS : ''),
    write: (file, value) => writes.run(() => files.write(file, value)),
    remove: (path) => removals.run(() => files.remove(path)),
  };
}

/** Calls that run one after another. */
interface Line {
  /** Rejects if the call takes too long, and at once while an earlier one does. */
  run(begin: () => Promise<void>): Promise<void>;
  /** True while a call takes too long. */
  isLate(): boolean;
}

function openLine(words: string, clock: Clock, tell: { late(): void; over(): void }): Line {
  let turn: Promise<unknown> = Promise.resolve();
  let isLate = false;
  const giveUp = async (call: Promise<void>): Promise<void> => {
    isLate = true;
    tell.late();
    await call.catch(() => undefined);
    isLate = false;
    tell.over();
  };
  const inTime = async (begin: () => Promise<void>): Promise<void> => {
    if (isLate) throw new Error(words);
    const call = begin();
    const late = Promise.withResolvers<void>();
    const cancel = clock.after(CALL_MS_MAX, () => {
      void giveUp(call);
      late.reject(new Error(words));
    });
    await Promise.race([call, late.promise]).finally(cancel);
  };
  return {
    isLate: () => isLate,
    run: (begin) => {
      const done = turn.then(() => inTime(begin));
      turn = done.catch(() => undefined);
      return done;
    },
  };
}
