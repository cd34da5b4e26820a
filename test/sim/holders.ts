// The holders of a host: one process for each workload. It outlasts agents, and answers while the workload runs.
import type { HolderStatus } from '../../agent/runtime/observe.ts';
import type { Holders } from '../../agent/runtime/steps.ts';
import type { Clock } from '../../shared/clock.ts';
import type { SimEngine } from './engine.ts';

export interface SimHolders {
  /** True if whoever connects to its SSH server is let in. */
  answers(workloadId: string): boolean;
  /** The holder is there, and answers nobody. */
  hang(workloadId: string): void;
  /** The agent ends the holder, whatever state it is in. The runtime starts another. */
  replace(workloadId: string): void;
  /** The holder dies, or its memory ran out. */
  kill(workloadId: string): void;
  endAll(): void;
  ids(): string[];
  /** A new agent knows none of them until it has asked. */
  holdersOfAnAgent(): Holders;
}

const START_MS = 300;

export function openSimHolders(engine: SimEngine, clock: Clock, onChange: () => void): SimHolders {
  const up = new Set<string>();
  const hung = new Set<string>();
  const kill = (id: string): void => {
    hung.delete(id);
    if (up.delete(id)) onChange();
  };
  return {
    answers: (id) => up.has(id) && !hung.has(id),
    hang: (id) => {
      hung.add(id);
      onChange();
    },
    replace: kill,
    ids: () => [...up],
    kill,
    endAll: () => {
      up.clear();
      hung.clear();
    },
    holdersOfAnAgent: () => {
      const known = new Set<string>();
      const statusOf = (id: string): HolderStatus => ({
        up: up.has(id),
        guest: up.has(id) && engine.containers.get(id)?.running === true,
        host_key: `ssh-ed25519 ${id}`,
        main_exit: null,
      });
      return {
        prepare: async () => ({ entrypoint: ['guest'], mounts: [] }),
        ensure: async (id) => {
          if (!up.has(id)) await clock.sleep(START_MS);
          up.add(id);
          known.add(id);
          onChange();
        },
        statuses: () => new Map([...known].map((id) => [id, statusOf(id)])),
        pause: async (id) => kill(id),
        end: async (id) => {
          known.delete(id);
          kill(id);
        },
      };
    },
  };
}
