// Which containers of this host have spoken from inside, and for how long the others have run without a word.
import type { Clock } from '../../shared/clock.ts';
import type { LocalContainer } from './engine.ts';
import type { HolderStatus } from './observe.ts';

export interface Silence {
  /** How long each workload ran without a word from inside, as far as this process has seen it. */
  ms: ReadonlyMap<string, number>;
  /** Workloads whose guest has answered: one that is gone a moment later has spoken all the same. */
  spoken: ReadonlySet<string>;
  /** The holders have changed. */
  listen(): void;
  /** What is there now; null while the engine does not answer: then nobody is known to run. */
  note(containers: readonly LocalContainer[] | null): void;
}

/** We look every few seconds: if this process or the whole host stood still for longer, so perhaps did the container. */
const GAP_MS_MAX = 15_000;

export function createSilence(clock: Clock, holders: { statuses(): ReadonlyMap<string, HolderStatus> }): Silence {
  const ms = new Map<string, number>();
  const spoken = new Set<string>();
  let silent: string[] = [];
  let notedMs = clock.monotonicMs();
  const listen = (): void => {
    for (const [id, { guest }] of holders.statuses()) if (guest) spoken.add(id);
  };
  /** A holder that is closed is our own fault, and no silence. */
  const isSilent = (id: string): boolean => holders.statuses().get(id)?.up === true && !spoken.has(id);
  return {
    ms,
    spoken,
    listen,
    note: (containers) => {
      const nowMs = clock.monotonicMs();
      const passedMs = Math.min(nowMs - notedMs, GAP_MS_MAX);
      notedMs = nowMs;
      for (const id of silent) ms.set(id, (ms.get(id) ?? 0) + passedMs);
      listen();
      silent = (containers ?? [])
        .filter((one) => one.running && isSilent(one.workload_id))
        .map((one) => one.workload_id);
      if (containers === null) return;
      const listed = new Set(containers.map((one) => one.workload_id));
      for (const id of ms.keys()) if (!listed.has(id)) ms.delete(id);
      const open = holders.statuses();
      for (const id of spoken) if (!listed.has(id) && !open.has(id)) spoken.delete(id);
    },
  };
}
