// The instances whose probes are good, in the memory of the process that probes them. A good probe that follows a good one changes nothing,
// so nothing is written for it. What this memory knows:
//
//   nextMs   when the next probe is due
//   goodMs   when the last good probe ended. This is a proof of life, so it decides what a customer pays if the host falls silent.
//
// The rows know less, and are enough for the next process if this one is killed:
// - `probes.next_ms` is TIMED_IN_MEMORY. Every other value means that the row itself says when its probe is due.
// - `instances.last_reachable_ms` is at most 10 minutes behind `goodMs`. It is exact from the first failed probe on, and after a planned stop.
// - `heartbeats.good_since_ms` is one number for all of them, written with each beat of the control plane (10 s): the oldest `goodMs`. So
//   each instance whose row is TIMED_IN_MEMORY had a good probe then or later. This bound is proven, and it is one probe period old.
//
// Example. Instance i was probed well at 10:00:20, and instance j at 10:00:41. The beat at 10:00:45 writes 10:00:20. The process is killed at
// 10:00:50, and the next one begins at 10:01:00. The first probe of j fails at 10:01:05. Its last proven life is 10:00:20: the process that
// knew more is gone. Without the beat it would be up to 10 minutes ago, and verdict.ts would credit a whole minute that the host has served.
//
// What must never happen:
// - `goodMs` is later than the last good probe.
// - A row is TIMED_IN_MEMORY, and `good_since_ms` does not count its instance. So an instance is put here before its row is written.

/** The value of `probes.next_ms` while the process that probes the instance knows when the next probe is due. */
export const TIMED_IN_MEMORY = 0;

/** The next probe is due sooner than this: a period and a fifth of it. */
export const NEXT_MS_MAX = 60_000;

interface Well {
  machineId: string;
  nextMs: number;
  goodMs: number;
  /** `last_reachable_ms` of its row. */
  storedMs: number;
}

export interface GoodProbe {
  machineId: string;
  endMs: number;
  nextMs: number;
  storedMs: number;
}

export interface Wells {
  /** Takes these instances over from another process, and forgets all others. `nextOf` chooses when a new one is probed first. */
  takeOver(rows: readonly { id: string; machineId: string }[], since: { goodMs: number; nextOf(): number }): void;
  /** Instances that are due, those that wait longest first. */
  due(nowMs: number): string[];
  /** When the last good probe of an instance ended; 0 if this process does not know. */
  goodMs(id: string): number;
  has(id: string): boolean;
  noteGood(id: string, probe: GoodProbe): void;
  drop(id: string): void;
  /** Makes the instances of a machine due now. */
  hastenMachine(machineId: string, nowMs: number): void;
  /** Makes up to `limit` instances of other machines due now: those that would be due soonest. */
  hastenOthers(machineId: string, nowMs: number, limit: number): void;
  /** All of these instances had a good probe then or later; null if there is none. */
  goodSinceMs(): number | null;
  /** Instances whose rows are at least `ms` behind, with the times of their last good probes. */
  behind(ms: number): { id: string; goodMs: number }[];
}

export function openWells(): Wells {
  const wells = new Map<string, Well>();
  const byMachine = new Map<string, Set<string>>();
  const put = (id: string, well: Well): void => {
    wells.set(id, well);
    const ids = byMachine.get(well.machineId) ?? new Set();
    byMachine.set(well.machineId, ids.add(id));
  };
  const drop = (id: string): void => {
    const machineId = wells.get(id)?.machineId ?? '';
    wells.delete(id);
    byMachine.get(machineId)?.delete(id);
    if (byMachine.get(machineId)?.size === 0) byMachine.delete(machineId);
  };
  return {
    takeOver: (rows, { goodMs, nextOf }) => {
      const before = new Map(wells);
      for (const id of before.keys()) drop(id);
      for (const { id, machineId } of rows) {
        const known = before.get(id) ?? { nextMs: nextOf(), goodMs: 0, storedMs: 0 };
        put(id, { ...known, machineId, goodMs: Math.max(known.goodMs, goodMs) });
      }
    },
    due: (nowMs) =>
      [...wells]
        // A probe that is due later than any can be was planned before the clock was set back.
        .filter(([, { nextMs }]) => nextMs <= nowMs || nextMs > nowMs + NEXT_MS_MAX)
        .toSorted(([, a], [, b]) => a.nextMs - b.nextMs)
        .map(([id]) => id),
    goodMs: (id) => wells.get(id)?.goodMs ?? 0,
    has: (id) => wells.has(id),
    noteGood: (id, { machineId, endMs, nextMs, storedMs }) => put(id, { machineId, nextMs, goodMs: endMs, storedMs }),
    drop,
    hastenMachine: (machineId, nowMs) => {
      for (const id of byMachine.get(machineId) ?? []) hasten(wells.get(id), nowMs);
    },
    hastenOthers: (machineId, nowMs, limit) => {
      const soonest: Well[] = [];
      for (const well of wells.values()) {
        const last = soonest.at(-1);
        if (well.machineId === machineId || well.nextMs <= nowMs) continue;
        if (soonest.length === limit && last !== undefined && last.nextMs <= well.nextMs) continue;
        const place = soonest.findIndex(({ nextMs }) => nextMs > well.nextMs);
        soonest.splice(place < 0 ? soonest.length : place, 0, well);
        soonest.length = Math.min(soonest.length, limit);
      }
      for (const well of soonest) hasten(well, nowMs);
    },
    goodSinceMs: () => {
      let sinceMs = Infinity;
      for (const { goodMs } of wells.values()) sinceMs = Math.min(sinceMs, goodMs);
      return sinceMs === Infinity || sinceMs === 0 ? null : sinceMs;
    },
    behind: (ms) =>
      [...wells].filter(([, well]) => well.goodMs - well.storedMs >= ms).map(([id, { goodMs }]) => ({ id, goodMs })),
  };
}

function hasten(well: Well | undefined, nowMs: number): void {
  if (well !== undefined) well.nextMs = Math.min(well.nextMs, nowMs);
}
