// The part of a model that says how the platform runs servers for it on machines of suppliers.
import { z } from 'zod';
import { CreateInstance } from '../../../shared/api/instance.ts';
import { EMBEDDINGS_INPUTS_MAX, GPUS_PER_MACHINE_MAX, REPLICAS_MAX } from '../../../shared/limits.ts';
import type { Dial } from '../../base/outbound/lines.ts';

const Milliseconds = z.int().min(1).max(3_600_000);

/** How requests to a server are made, whether the operator runs it elsewhere or the platform runs it on its fleet. */
export const Serving = z.strictObject({
  /** The server's name of the model. Customers never see it. */
  model: z.string().min(1),
  /** Requests that it answers at the same time. Further requests go to other servers. */
  max_open_requests: z.int().min(1).max(100_000).default(256),
  /** The number of texts in one request, for embedding models. */
  max_inputs: z.int().min(1).max(EMBEDDINGS_INPUTS_MAX).default(32),
  /** Limit for a whole answer. Official clients give up after 300 s without headers. */
  answer_ms: Milliseconds.default(280_000),
  /** Time until the first event of a stream. Comments before it do not count. */
  first_byte_ms: Milliseconds.default(60_000),
  /** Time between two pieces of a stream. */
  idle_ms: Milliseconds.default(60_000),
  /**
   * The kind of server. vllm, sglang and llama_cpp count tokens while they stream. vllm, llama_cpp and tei have a tokenizer, each with its own
   * API. vllm_omni and sglang make videos.
   */
  engine: z.enum(['vllm', 'vllm_omni', 'sglang', 'llama_cpp', 'tei', 'other']).default('other'),
});

/** Servers of a model that the platform starts and stops itself. */
export const Deployment = z
  .strictObject({
    ...Serving.shape,
    image: z.string().min(1),
    /** The command of the container, as in a launch. If it is missing, the image's own is used. */
    entrypoint: z.array(z.string()).optional(),
    args: z.array(z.string()).optional(),
    env: z.record(z.string(), z.string()).default({}),
    /** The port on which the server listens inside the container. Requests reach it through the tunnel. It is never public. */
    port: z.int().min(1).max(65_535),
    gpu_type: z.string().min(1),
    gpu_count: z.int().min(1).max(GPUS_PER_MACHINE_MAX).default(1),
    /** Limit for one replica, in dollars. Dearer machines are not taken. */
    max_price_per_hour: z.number().positive().max(10_000),
    /** A host sees the requests that its replicas answer. `trusted`: only machines that the operator has marked. */
    placement: z.enum(['trusted', 'any']).default('trusted'),
    min_replicas: z.int().min(0).max(REPLICAS_MAX),
    max_replicas: z.int().min(1).max(REPLICAS_MAX),
    /** Minutes in which fewer replicas were needed than there are. After them, one replica is stopped. */
    idle_minutes: z.int().min(1).max(1_440).default(10),
    /** Limit in seconds from the start of a replica until it answers. A caller does not wait longer than this for the first replica. */
    start_deadline_seconds: z.int().min(10).max(3_600).default(120),
  })
  .superRefine((deployment, context) => {
    if (deployment.max_replicas < deployment.min_replicas)
      context.addIssue({ code: 'custom', path: ['max_replicas'], message: 'must be at least min_replicas' });
    const launch = CreateInstance.safeParse(launchOf(deployment, 'model'));
    for (const { path, message } of launch.error?.issues ?? [])
      context.addIssue({ code: 'custom', path: path.map((part) => (part === 'cmd' ? 'args' : part)), message });
  });
export type Deployment = z.infer<typeof Deployment>;

/** The launch of one replica. Each one is an ordinary instance of the platform's organisation. */
export function launchOf(deployment: z.input<typeof Deployment>, name: string): CreateInstance {
  const { image, entrypoint, args, env, gpu_type, gpu_count = 1, max_price_per_hour } = deployment;
  return {
    name,
    tier: 'on_demand',
    gpu_type,
    gpu_count,
    image,
    ...(entrypoint && { entrypoint }),
    ...(args && { cmd: args }),
    env: { ...env },
    max_price_per_hour,
  };
}

/** What a running replica adds to its server. */
export interface Replica {
  id: string;
  /** Opens a connection to the server inside the container. */
  dial: Dial;
  /** Notes that a request to the replica begins. The returned function notes its end. */
  enter(): () => void;
  /** Notes that the server has answered a request to the end, has refused it as the caller's mistake, or has failed it. */
  note(result: 'answered' | 'refused' | 'failed'): void;
}
