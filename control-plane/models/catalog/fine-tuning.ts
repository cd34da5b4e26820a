// How a model is fine-tuned: the part of the operator's file that says with which image, on which GPUs and for which price.
import { z } from 'zod';
import { DISK_GB_MAX, DISK_GB_MIN, GPU_COUNT_MAX, IMAGE_REFERENCE_CHARS_MAX } from '../../../shared/limits.ts';

/** Higher than any real price of a second of a GPU. */
const UCENTS_PER_SECOND_MAX = 1_000_000_000;

export const FineTuning = z
  .strictObject({
    /** What a job names as `model`. */
    base_model: z
      .string()
      .regex(/^[A-Za-z0-9][\w./-]{0,95}$/, 'must be letters, digits, dots, dashes, slashes and underscores'),
    /** The image of the trainer. It contains the base model, because a job has no network. Hosts pull it without a login. */
    image: z
      .string()
      .max(IMAGE_REFERENCE_CHARS_MAX)
      .regex(/@sha256:[0-9a-f]{64}$/, 'must end with the digest of the image, like @sha256:...'),
    /** The path of the base model in that image. The stored terms of a job are part of an index, of which PostgreSQL takes 2,704 bytes. */
    base_model_path: z
      .string()
      .regex(/^\/[ -~]{0,1023}$/, 'must be an absolute path of at most 1,024 ASCII characters'),
    gpu_count: z.int().min(1).max(GPU_COUNT_MAX).default(1),
    min_vram_gb: z.int().min(0).max(1_000).default(0),
    /** Disk of the job in GB, on hosts that can limit the disk. It holds the checkpoints and the result. */
    disk_gb: z.int().min(DISK_GB_MIN).max(DISK_GB_MAX).default(100),
    /** The price of one GPU. Machines that cost more are not used. */
    gpu_second_microcents: z.int().min(1).max(UCENTS_PER_SECOND_MAX),
    /** Tokens that one GPU trains in a second, on a slow and on a fast machine. Used only for quotes. */
    tokens_per_gpu_second: z.strictObject({ min: z.int().min(1), max: z.int().min(1) }),
    epochs: z.int().min(1).max(100).default(3),
    /** The smallest budget pays for this number of minutes. Less would be used up before the first checkpoint. */
    budget_minutes_min: z.int().min(2).max(1_440).default(10),
    /** Limit of all files of a result, and of one checkpoint. */
    result_mib_max: z.int().min(1).max(65_536).default(8_192),
  })
  .refine(({ tokens_per_gpu_second: { min, max } }) => min <= max, {
    path: ['tokens_per_gpu_second'],
    message: 'must have a max that is not below min',
  });
export type FineTuning = z.infer<typeof FineTuning>;

/** The price of a job for an hour, in microcents. */
export function ucentsPerHour({ gpu_second_microcents: ucents, gpu_count: count }: FineTuning): bigint {
  return BigInt(ucents) * 3_600n * BigInt(count);
}
