// Pure: what decides whether the GPUs of a machine are on offer, one check after another. The first obstacle is the reason that people read;
// the checklist of a supplier has all of them, each with its evidence and what to do.
import type { MachineCheck } from '../../../shared/api/community.ts';
import { isoTime } from '../../../shared/clock.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import { driverWords } from './approval.ts';
import type { GpuUse, MachineRow } from './store.ts';
import { gpuObstacleOf, toolkitObstacle } from './verdict.ts';

/** The reason, for the supplier, why nothing of the machine is on offer; undefined if its usable GPUs are on offer. */
export function obstacleOf(machine: MachineRow): string | undefined {
  for (const { obstacle } of DECIDING) {
    const why = obstacle(machine);
    if (why !== undefined) return why;
  }
  return undefined;
}

/** Why this tier is not sold, even if the machine is listed; undefined if it is sold. */
export function tierObstacle({ tier }: Pick<MachineRow, 'tier'>): string | undefined {
  return tier === 'spot' ? 'Spot capacity is not sold at present.' : undefined;
}

/** Facts for the checklist that are not in the row of a machine. */
export interface ChecklistFacts {
  gpus: readonly GpuUse[];
  /** The evidence of each rental on it whose SSH probes fail now. */
  failingProbes: readonly string[];
}

/** All checks of a machine, in the order in which they decide. */
export function checklistOf(machine: MachineRow, facts: ChecklistFacts): MachineCheck[] {
  const deciding = [...DECIDING, TIER].map((check): MachineCheck => {
    const { name, remedy } = check;
    const obstacle = check.obstacle(machine);
    const isKnown = check.isKnown?.(machine) ?? true;
    if (obstacle === undefined && isKnown)
      return { name, state: 'passed', required: true, evidence: check.passed(machine, facts), remedy: null };
    const isWaiting = !isKnown || check.waits?.(machine) === true;
    const evidence = obstacle ?? 'The host has not reported it yet.';
    return { name, state: isWaiting ? 'waiting' : 'failed', required: true, evidence, remedy };
  });
  const all = [...deciding, diskCheck(machine), rentalsCheck(facts)];
  return hasEnrolled(machine) ? all : all.map(untilEnrolled);
}

/** Before the enrolment nothing is known of the host, so only the enrolment has a remedy. */
function untilEnrolled(check: MachineCheck): MachineCheck {
  if (check.name === 'enrolment' || check.state !== 'waiting') return check;
  return { ...check, evidence: 'Known once the host has enrolled.', remedy: null };
}

interface Check {
  name: MachineCheck['name'];
  /** The reason why the check fails; undefined if it passes, or if its result is not known yet. */
  obstacle(machine: MachineRow): string | undefined;
  /** True if the result is known. If this function is missing, the result is always known. */
  isKnown?(machine: MachineRow): boolean;
  /** True if the supplier cannot repair anything, because the operator must act or the host must report first. */
  waits?(machine: MachineRow): boolean;
  passed(machine: MachineRow, facts: ChecklistFacts): string;
  remedy: string;
}

const GIB = 1024 ** 3;
const hasReported = ({ inventory }: MachineRow): boolean => inventory !== null;
const hasEnrolled = ({ public_key: key }: MachineRow): boolean => key !== null;
const isWithdrawn = ({ status }: MachineRow): boolean => status === 'draining' || status === 'delisted';

/** The checks in the order in which they decide: the first one that fails gives the reason that people read. */
const DECIDING: readonly Check[] = [
  {
    name: 'supplier',
    obstacle: ({ supplier_status: status }) =>
      status === 'suspended' ? 'The operator has suspended the supplier.' : undefined,
    passed: () => 'The supplier is active.',
    remedy: 'Ask the operator why.',
  },
  {
    name: 'listing',
    obstacle: ({ status }) => {
      if (status === 'draining') return 'It was delisted; a rental on it goes on until it ends.';
      if (status === 'delisted') return 'It was delisted.';
      return status === 'suspended' ? 'The operator has suspended it.' : undefined;
    },
    passed: () => 'Nobody has taken it off the market.',
    remedy:
      'If you have delisted it, list it again: svc machine relist <id>. If the operator has suspended it, ask why.',
  },
  {
    name: 'rentable_until',
    obstacle: ({ offer_ended: isEnded, rentable_until_ms: ms }) =>
      isEnded && ms !== null
        ? `Its supplier offers it until ${isoTime(ms)}; a rental on it goes on until it ends.`
        : undefined,
    passed: ({ rentable_until_ms: ms }) =>
      ms === null ? 'It is offered without an end.' : `It is offered until ${isoTime(ms)}.`,
    remedy: "Set a later time, or withdraw it ('' in place of a time): svc machine change <id> --until <time>",
  },
  {
    name: 'enrolment',
    obstacle: (machine) =>
      hasEnrolled(machine) || isWithdrawn(machine) ? undefined : 'The host has not enrolled yet.',
    isKnown: hasEnrolled,
    waits: () => true,
    passed: ({ inventory }) =>
      inventory === null
        ? 'The host has enrolled.'
        : `${inventory.hostname} has enrolled with the agent ${inventory.agent_version}.`,
    remedy: 'Install the agent on the host with the enrolment token. A new token: svc machine token <id>',
  },
  {
    name: 'verification',
    obstacle: ({ verification_status: status, verification_detail: detail }) =>
      status === 'failed' ? `Its verification failed: ${detail ?? ''}` : undefined,
    isKnown: hasReported,
    waits: (machine) => !hasReported(machine),
    passed: () => 'The host contradicts neither what was declared nor what was approved.',
    remedy:
      'Bring its GPUs back, or declare what the host has: PATCH gpu_type, gpu_count or vram_per_gpu_gb of the machine (null withdraws a declaration). What the operator has not approved needs a new approval.',
  },
  {
    name: 'approval',
    obstacle: ({ status, approved_gpus: approved }) => {
      if (status === 'pending_verification') return "The operator's approval is awaited.";
      return approved === null ? 'The operator must approve the GPUs that the host shows.' : undefined;
    },
    waits: () => true,
    passed: ({ approved_gpus: approved }) => `GPUs that the operator has approved: ${approved?.length ?? 0}.`,
    remedy: 'Wait for the operator, who approves the GPUs that the host shows.',
  },
  {
    name: 'connection',
    obstacle: ({ online }) => (online ? undefined : 'The agent of the host is not connected.'),
    waits: (machine) => !hasEnrolled(machine),
    passed: ({ last_heartbeat_ms: ms }) =>
      ms === null ? 'The agent is connected.' : `The agent is connected; its last sign was noted at ${isoTime(ms)}.`,
    remedy: 'On the host, see why: svc-agent status. It needs outbound 443 and the service svc-agent.',
  },
  {
    name: 'identity',
    obstacle: ({ copied_ms: ms }) =>
      ms === null
        ? undefined
        : 'Two hosts run with the identity of this machine, from copies of one disk. End one of them for good; then the operator can confirm the other.',
    isKnown: hasEnrolled,
    passed: () => 'One host has its identity.',
    remedy: 'End the copy for good, then ask the operator to confirm the other host.',
  },
  {
    name: 'containers',
    obstacle: ({ unknown_workloads: unknown }) => {
      // GPUs that an unknown container may use must not be given to a customer.
      if (unknown === null) return 'The host has not said yet which containers it runs.';
      return unknown.length > 0
        ? 'The host runs containers that this service does not know; the operator must end them.'
        : undefined;
    },
    isKnown: hasEnrolled,
    waits: ({ unknown_workloads: unknown }) => unknown === null,
    passed: () => 'The host runs no container of this service that is not known.',
    remedy: 'Ask the operator to end them (admin machine remove-unknown).',
  },
  {
    name: 'engine',
    // If there is no container engine, nothing can start, however many GPUs are free.
    obstacle: ({ inventory }) =>
      inventory === null || inventory.engine_version === ''
        ? 'The Docker Engine of the host does not answer.'
        : undefined,
    waits: (machine) => !hasReported(machine),
    passed: ({ inventory }) => `Docker Engine ${inventory?.engine_version ?? ''} answers.`,
    remedy: 'On the host, start Docker: systemctl start docker',
  },
  {
    name: 'driver',
    obstacle: ({ inventory, approved_gpus: approved }) => {
      const words = inventory === null ? undefined : driverWords(approved ?? [], inventory);
      return words === undefined ? undefined : `The operator must approve it again: ${words}.`;
    },
    isKnown: hasReported,
    waits: () => true,
    passed: ({ inventory }) =>
      `The driver is the approved one: ${[...new Set(inventory?.gpus.map((gpu) => gpu.driver_version))].join(', ')}.`,
    remedy: 'Install the approved driver, or wait for the operator to approve the new one.',
  },
  {
    name: 'fence',
    obstacle: ({ inventory }) =>
      inventory === null || inventory.fence_error === ''
        ? undefined
        : `The network fence of the host does not stand: ${inventory.fence_error}`,
    isKnown: hasReported,
    waits: (machine) => !hasReported(machine),
    passed: ({ inventory }) =>
      inventory?.network_fence === 'nftables'
        ? 'The agent keeps containers from the host and private networks.'
        : 'The agent keeps no fence: you keep containers from your networks yourself.',
    remedy: 'Install nft (package nftables) on the host, and see svc-agent check.',
  },
  {
    name: 'container_toolkit',
    obstacle: ({ inventory }) =>
      inventory === null ? undefined : toolkitObstacle(inventory.container_toolkit_version),
    isKnown: hasReported,
    waits: (machine) => !hasReported(machine),
    passed: ({ inventory }) =>
      inventory?.container_toolkit_version === ''
        ? 'The version of the NVIDIA Container Toolkit is not known.'
        : `No escape is known from the NVIDIA Container Toolkit ${inventory?.container_toolkit_version ?? ''}.`,
    remedy: 'Upgrade the NVIDIA Container Toolkit on the host to the named version or newer.',
  },
  {
    name: 'gpus',
    obstacle: ({ inventory }) => (inventory === null ? undefined : gpuObstacleOf(inventory)),
    isKnown: hasReported,
    waits: (machine) => !hasReported(machine),
    passed: ({ inventory }, { gpus }) => gpusWords(inventory, gpus),
    remedy:
      'End other programs that use the GPUs, reset or exchange a GPU that is broken, and let Docker give GPUs. On the host, see nvidia-smi and svc-agent check.',
  },
];

const TIER: Check = {
  name: 'tier',
  obstacle: tierObstacle,
  passed: () => 'On-demand capacity is sold.',
  remedy: 'Change the tier to on_demand: PATCH the machine.',
};

function gpusWords(inventory: Inventory | null, gpus: readonly GpuUse[]): string {
  const kinds = gpus.map(({ gpu_type: type, count, rented, reserved }) => {
    return `${count} ${type} (${rented} rented, ${reserved} reserved)`;
  });
  const unfit = (inventory?.gpu_faults ?? []).map(({ uuid, severity }) => `${uuid} is ${severity}`);
  return `${[...kinds, ...unfit].join('; ')}.`;
}

function diskCheck({ inventory }: MachineRow): MachineCheck {
  const check = { name: 'disk', required: false } as const;
  if (inventory === null)
    return { ...check, state: 'waiting', evidence: 'The host has not reported it yet.', remedy: 'Install the agent.' };
  const size = `${Math.floor(inventory.storage_bytes / GIB)} GB`;
  if (inventory.disk_enforced)
    return {
      ...check,
      state: 'passed',
      evidence: `Disks of containers hold their size; ${size} in all.`,
      remedy: null,
    };
  return {
    ...check,
    state: 'failed',
    evidence: `The host cannot hold disks of containers to a size (${size}), so launches that name disk_gb go elsewhere.`,
    remedy: 'Put the storage of Docker on XFS with pquota, btrfs or zfs. On btrfs, also install btrfs-progs.',
  };
}

function rentalsCheck({ gpus, failingProbes }: ChecklistFacts): MachineCheck {
  const check = { name: 'rentals', required: false } as const;
  const [first] = failingProbes;
  if (first === undefined) {
    const rented = gpus.reduce((sum, gpu) => sum + gpu.rented, 0);
    const evidence = rented === 0 ? 'No GPU is rented.' : `All rentals answer our SSH probes. Rented GPUs: ${rented}.`;
    return { ...check, state: 'passed', evidence, remedy: null };
  }
  return {
    ...check,
    state: 'failed',
    evidence: `Rentals that do not answer our SSH probes, and are not paid for if that lasts: ${failingProbes.length}. ${first}`,
    remedy: 'See the network of the host and svc-agent status.',
  };
}
