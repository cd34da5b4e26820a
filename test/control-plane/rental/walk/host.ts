// A host that follows its desired state one phase at a time, and keeps its containers while it is offline.
import type { PullLogin } from '../../../../shared/protocol/link.ts';
import type { DesiredWorkload, ObservedWorkload } from '../../../../shared/protocol/workload.ts';
import { NOTHING_OBSERVED, type World } from '../../../kit/world.ts';

type Phase = ObservedWorkload['phase'];

export interface Host {
  machineId: string;
  /** The organisation of its supplier. */
  orgId: string;
  isUp: boolean;
  /** Puts the container into this phase, unless the host has removed it: a removed container never comes back. */
  put(workloadId: string, phase: Phase, failure: ObservedWorkload['failure_code']): void;
  /** Moves each container that should run one phase further, and removes those that should not run. */
  work(world: World): Promise<void>;
  /** Reports all containers if the host is up. */
  tell(world: World): Promise<void>;
  /** GPUs that its desired state gave to a container while another container had them. */
  clashes: readonly string[];
}

interface Container {
  phase: Phase;
  failure: ObservedWorkload['failure_code'];
  gpuUuids: readonly string[];
}

const NEXT: Partial<Record<Phase, Phase>> = { pulling: 'creating', creating: 'starting', starting: 'running' };

const OVER = new Set<Phase>(['stopped', 'removed', 'missing']);

export function openHost({ machineId, orgId }: Pick<Host, 'machineId' | 'orgId'>): Host {
  const containers = new Map<string, Container>();
  const clashes: string[] = [];
  const host: Host = {
    machineId,
    orgId,
    clashes,
    isUp: true,
    put: (id, phase, failure) => {
      const container = containers.get(id);
      if (container === undefined || OVER.has(container.phase)) return;
      containers.set(id, { ...container, phase, failure: phase === 'failed' ? failure : null });
    },
    work: async (world) => {
      if (!host.isUp) return;
      const { workloads } = await world.rooms.workloads.desired(machineId);
      // A container that nobody asks for any more ends.
      for (const id of containers.keys()) {
        if (!workloads.some((wanted) => wanted.workload_id === id)) containers.delete(id);
      }
      const used = [...containers.values()].filter(({ phase }) => !OVER.has(phase)).flatMap(({ gpuUuids }) => gpuUuids);
      for (const wanted of workloads) {
        const isNew = wanted.desired === 'running' && !containers.has(wanted.workload_id);
        if (isNew) clashes.push(...wanted.gpu_uuids.filter((uuid) => used.includes(uuid)));
        const next = await nextOf(wanted, containers.get(wanted.workload_id), world, machineId);
        containers.set(wanted.workload_id, { ...next, gpuUuids: wanted.gpu_uuids });
      }
      await host.tell(world);
    },
    tell: async (world) => {
      if (!host.isUp) return;
      await world.rooms.workloads.observe(machineId, {
        type: 'observed',
        held: null,
        unknown_workload_ids: [],
        workloads: [...containers].map(([id, { phase, failure }]) => ({
          ...NOTHING_OBSERVED,
          workload_id: id,
          phase,
          host_key: phase === 'running' ? 'ssh-ed25519 AAAA' : null,
          failure_code: failure,
        })),
      });
    },
  };
  return host;
}

async function nextOf(
  { workload_id: id, desired, pull_login: isPrivate }: DesiredWorkload,
  container: Container | undefined,
  world: World,
  machineId: string,
): Promise<Omit<Container, 'gpuUuids'>> {
  if (desired === 'removed') return { phase: container?.phase === 'running' ? 'stopped' : 'removed', failure: null };
  if (container !== undefined) return { ...container, phase: NEXT[container.phase] ?? container.phase };
  const isRefused = isPrivate && (await login(world, machineId, id)) === undefined;
  return isRefused ? { phase: 'failed', failure: 'image_pull_failed' } : { phase: 'pulling', failure: null };
}

/** Undefined if the control plane has none to give: the login was deleted. */
function login({ rooms }: World, machineId: string, workloadId: string): Promise<PullLogin | null | undefined> {
  return rooms.instances.pullLogin(machineId, workloadId).catch(() => undefined);
}
