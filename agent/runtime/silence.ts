// Tracks which guests have ever connected, for how long the other containers have run without their guest, and for how long containers that
// worked are dead.
import type { Clock } from '../../shared/clock.ts';
import type { LocalContainer } from './engine.ts';
import type { HolderStatus } from './observe.ts';

export interface Silence {
  /** How long each workload has run without its guest, as far as this process has seen. */
  ms: ReadonlyMap<string, number>;
  /** How long neither the guest nor the engine shows that the container of a workload that has run still runs. */
  deadMs: ReadonlyMap<string, number>;
  /** Workloads whose guest has connected at least once, also if it left a moment later. */
  spoken: ReadonlySet<string>;
  /** Must be called after each change of the holders. */
  listen(): void;
  /** Takes the list of containers; null while the engine does not answer, because then none is known to run. */
  note(containers: readonly LocalContainer[] | null): void;
}

/** `note` is called every few seconds. If this process or the host stood still for longer, the container may have stood still too. */
const GAP_MS_MAX = 15_000;

export function createSilence(
  clock: Clock,
  holders: { statuses(): ReadonlyMap<string, HolderStatus> },
  hasRun: (workloadId: string) => boolean,
): Silence {
  const ms = new Map<string, number>();
  const deadMs = new Map<string, number>();
  const spoken = new Set<string>();
  let silent: string[] = [];
  let notedMs = clock.monotonicMs();
  const listen = (): void => {
    for (const [id, { guest }] of holders.statuses()) if (guest) spoken.add(id);
  };
  /** Time without a holder does not count: the guest had nothing to connect to. */
  const isSilent = (id: string): boolean => holders.statuses().get(id)?.up === true && !spoken.has(id);
  const noteDead = (containers: readonly LocalContainer[] | null, passedMs: number): void => {
    const running = new Set((containers ?? []).filter((one) => one.running).map((one) => one.workload_id));
    const open = holders.statuses();
    for (const [id, beforeMs] of deadMs) deadMs.set(id, beforeMs + passedMs);
    for (const id of deadMs.keys())
      if (!open.has(id) || open.get(id)?.guest === true || running.has(id)) deadMs.delete(id);
    for (const [id, { guest }] of open) {
      if (!guest && !running.has(id) && hasRun(id) && !deadMs.has(id)) deadMs.set(id, 0);
    }
  };
  return {
    ms,
    deadMs,
    spoken,
    listen,
    note: (containers) => {
      const nowMs = clock.monotonicMs();
      const passedMs = Math.min(nowMs - notedMs, GAP_MS_MAX);
      notedMs = nowMs;
      for (const id of silent) ms.set(id, (ms.get(id) ?? 0) + passedMs);
      listen();
      noteDead(containers, passedMs);
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
