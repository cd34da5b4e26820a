// What a host says about itself at enrolment and on every link: GPUs from nvidia-smi, and the facts that placement needs.
import { z } from 'zod';
import { GPUS_PER_MACHINE_MAX } from '../limits.ts';

export const GpuFacts = z.strictObject({
  uuid: z.string().min(1).max(128),
  index: z.int().min(0).max(255),
  /** As nvidia-smi prints it, e.g. `NVIDIA H100 80GB HBM3`. */
  name: z.string().min(1).max(128),
  memory_mib: z.int().min(0),
  driver_version: z.string().max(64),
  /** Its place on the PCI bus as nvidia-smi prints it, empty where unknown. */
  bus_id: z.string().max(32).default(''),
  /** A process that is not ours holds memory on it: not to be listed. */
  foreign_use: z.boolean(),
});
export type GpuFacts = z.infer<typeof GpuFacts>;

/** What the host has found out about one of its GPUs, from the kernel log and nvidia-smi alone: nobody in a container can bring it about. */
export const GpuFault = z.strictObject({
  uuid: z.string().min(1).max(128),
  /** `broken`: nothing computes on it until it is reset. `unfit`: whoever has it may go on, nobody new gets it. */
  severity: z.enum(['broken', 'unfit']),
  detail: z.string().min(1).max(200),
});
export type GpuFault = z.infer<typeof GpuFault>;

export const Inventory = z.strictObject({
  gpus: z.array(GpuFacts).max(GPUS_PER_MACHINE_MAX),
  /** Why nvidia-smi cannot say which GPUs there are, empty where it can: `gpus` is empty then, and none may be rented out. */
  gpu_error: z.string().max(400).default(''),
  /** Also of GPUs that `gpus` does not name: nvidia-smi lists no lost one. */
  gpu_faults: z.array(GpuFault).max(GPUS_PER_MACHINE_MAX).default([]),
  /** What keeps containers from the host and private networks: our own table, or what the supplier has (an agent that says nothing has none). */
  network_fence: z.enum(['nftables', 'none']).default('none'),
  /** Why the fence does not stand, empty where it does: no container is started there, and nothing may be rented out. */
  fence_error: z.string().max(400).default(''),
  cpu_cores: z.int().min(0),
  ram_bytes: z.int().min(0),
  storage_bytes: z.int().min(0),
  /** A container's disk was limited and filled here, and the limit held. */
  disk_enforced: z.boolean(),
  hostname: z.string().max(255),
  kernel: z.string().max(255),
  /** Docker Engine's version, empty where it does not answer. */
  engine_version: z.string().max(64),
  /** NVIDIA Container Toolkit's version, empty where the host has none or does not know. */
  container_toolkit_version: z.string().max(64).default(''),
  agent_version: z.string().max(64),
});
export type Inventory = z.infer<typeof Inventory>;

/** Body of `POST /agent/v1/enroll`. The host made its key and stored it before this call, so that a repeat is safe. */
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
