// The inventory that a host sends at enrolment and on every link: GPUs from nvidia-smi, and the facts that placement needs.
import { z } from 'zod';
import { GPUS_PER_MACHINE_MAX } from '../limits.ts';

export const GpuFacts = z.strictObject({
  uuid: z.string().min(1).max(128),
  index: z.int().min(0).max(255),
  /** The name that nvidia-smi prints, e.g. `NVIDIA H100 80GB HBM3`. */
  name: z.string().min(1).max(128),
  memory_mib: z.int().min(0),
  driver_version: z.string().max(64),
  /** Address of the GPU on the PCI bus as nvidia-smi prints it; empty if unknown. */
  bus_id: z.string().max(32).default(''),
  /** True: a foreign process uses memory of the GPU, so the GPU must not be rented out. */
  foreign_use: z.boolean(),
});
export type GpuFacts = z.infer<typeof GpuFacts>;

/** A fault of a GPU, from the kernel log, nvidia-smi, a test container and the settings of the agent. Nobody in a container can cause it. */
export const GpuFault = z.strictObject({
  uuid: z.string().min(1).max(128),
  /** `broken`: nothing computes on it until a reset. `unfit`: the current rental may go on, but no new one gets it. */
  severity: z.enum(['broken', 'unfit']),
  detail: z.string().min(1).max(200),
});
export type GpuFault = z.infer<typeof GpuFault>;

export const Inventory = z.strictObject({
  gpus: z.array(GpuFacts).max(GPUS_PER_MACHINE_MAX),
  /** Why nvidia-smi cannot list the GPUs; empty if it can. With an error, `gpus` is empty and no GPU may be rented out. */
  gpu_error: z.string().max(400).default(''),
  /** Includes GPUs that `gpus` does not contain: nvidia-smi does not list a lost one. */
  gpu_faults: z.array(GpuFault).max(GPUS_PER_MACHINE_MAX).default([]),
  /**
   * How containers are kept away from the host and from private networks: by our nftables table, or (`none`) by the supplier. An old agent
   * does not send this member and has no fence.
   */
  network_fence: z.enum(['nftables', 'none']).default('none'),
  /** Why the network fence could not be set up; empty if it could. With an error, no container is started and nothing may be rented out. */
  fence_error: z.string().max(400).default(''),
  cpu_cores: z.int().min(0),
  ram_bytes: z.int().min(0),
  storage_bytes: z.int().min(0),
  /** True if a test has filled a container's disk here and the limit held. */
  disk_enforced: z.boolean(),
  hostname: z.string().max(255),
  kernel: z.string().max(255),
  /** Docker Engine's version; empty if it does not answer. */
  engine_version: z.string().max(64),
  /** NVIDIA Container Toolkit's version; empty if there is none or the version is unknown. */
  container_toolkit_version: z.string().max(64).default(''),
  agent_version: z.string().max(64),
});
export type Inventory = z.infer<typeof Inventory>;

/** Number of GPUs in this machine, also of those that nvidia-smi does not list any more: a rental never gets their share of the machine. */
export function countCards({ gpus, gpu_faults: faults }: Pick<Inventory, 'gpus' | 'gpu_faults'>): number {
  return new Set([...gpus, ...faults].map(({ uuid }) => uuid)).size;
}

/** Body of `POST /agent/v1/enroll`. The host has stored its key before this call, so that a repeat is safe. */
export const EnrollRequest = z.strictObject({
  token: z.string().min(1).max(256),
  /** Raw ed25519 public key, base64url (32 bytes). */
  public_key: z.string().length(43),
  inventory: Inventory,
});
export type EnrollRequest = z.infer<typeof EnrollRequest>;

export const EnrollResponse = z.strictObject({
  machine_id: z.string(),
  /** Path of the link on the same origin. */
  link_path: z.string(),
});
export type EnrollResponse = z.infer<typeof EnrollResponse>;
