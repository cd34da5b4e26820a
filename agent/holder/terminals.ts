// Keeps the shells of one workload's console: their number, which shell a page returns to, and how long a shell waits for its page.
import type { Clock } from '../../shared/clock.ts';
import type { Ids } from '../../shared/ids.ts';
import type { Guests } from './guest-connection.ts';
import { type Size, startTerminal, type TerminalSession } from './terminal-session.ts';

export interface Terminals {
  /** The terminal with this id, or a new one if there is none. Rejects if none can be started. */
  find(id: string, size: Size): Promise<{ id: string; session: TerminalSession }>;
  /** Must be called whenever a page has gone. A terminal to which no page returns ends after a while. */
  left(id: string): void;
}

const TERMINALS_MAX = 8;
const DETACHED_MS_MAX = 30 * 60_000;

interface Kept {
  session: TerminalSession;
  /** Since when no page shows it, and how to cancel its end. */
  since: number;
  cancelEnd(): void;
}

export function openTerminals(deps: { clock: Clock; ids: Ids; guests: Guests }): Terminals {
  const { clock, ids, guests } = deps;
  const kept = new Map<string, Kept>();
  let starting = 0;

  /** Ends the terminal that has been without a page for longest, if there are too many. */
  const makeRoom = (): void => {
    if (kept.size + starting < TERMINALS_MAX) return;
    const alone = [...kept].filter(([, { session }]) => session.isDetached());
    const [oldest] = alone.toSorted(([, a], [, b]) => a.since - b.since);
    if (oldest === undefined) throw new Error(`${TERMINALS_MAX} terminals are open already; close one of them`);
    kept.delete(oldest[0]);
    oldest[1].cancelEnd();
    oldest[1].session.end();
  };

  const start = async (size: Size): Promise<{ id: string; session: TerminalSession }> => {
    makeRoom();
    const id = ids.secret(16);
    starting += 1;
    try {
      const session = await startTerminal(guests, size, () => {
        kept.get(id)?.cancelEnd();
        kept.delete(id);
      });
      kept.set(id, { session, since: 0, cancelEnd: () => undefined });
      return { id, session };
    } finally {
      starting -= 1;
    }
  };

  return {
    find: async (id, size) => {
      const found = kept.get(id);
      if (found === undefined) return start(size);
      found.cancelEnd();
      return { id, session: found.session };
    },
    left: (id) => {
      const one = kept.get(id);
      if (one === undefined || !one.session.isDetached()) return;
      one.since = clock.monotonicMs();
      one.cancelEnd = clock.after(DETACHED_MS_MAX, () => one.session.end());
    },
  };
}
