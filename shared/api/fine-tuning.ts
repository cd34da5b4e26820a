// Fine-tuning (specification 2.15, 4.8): jobs, their events and checkpoints, and what a job would cost.
import { z } from 'zod';
import { FINE_TUNING_METADATA_MAX } from '../limits.ts';
import { pageParameters } from './page.ts';

const unixSeconds = z.int();

const FineTuningStatus = z.enum(['validating', 'queued', 'running', 'succeeded', 'failed', 'cancelled']);

const Lora = z.strictObject({
  lora_r: z.int().min(1).max(256).default(16).describe('Rank of the adapter'),
  lora_alpha: z.int().min(1).max(1024).default(32).describe('Scale of the adapter'),
  lora_dropout: z.number().min(0).max(0.9).default(0.05).describe('Share of the adapter that a step leaves out'),
});

const FineTuningMethod = z.strictObject({
  type: z.enum(['lora', 'qlora']).describe('`qlora` keeps the base model in 4 bits and needs less memory'),
  lora: Lora.prefault({}).describe('The adapter'),
});
export type FineTuningMethod = z.infer<typeof FineTuningMethod>;

const Metadata = z
  .record(z.string().min(1).max(64), z.string().max(512))
  .refine((pairs) => Object.keys(pairs).length <= FINE_TUNING_METADATA_MAX, {
    message: `must have at most ${FINE_TUNING_METADATA_MAX} pairs`,
  });

export const CreateFineTuningJob = z
  .strictObject({
    model: z.string().min(1).max(256).describe('The `fine_tune_base_model` of a model of `GET /v1/models`'),
    training_file: z.string().min(1).max(64).describe('The id of an uploaded file'),
    method: FineTuningMethod.describe('How to train'),
    seed: z
      .int()
      .min(0)
      .max(2_147_483_647)
      .nullish()
      .describe('The same seed gives the same order of examples; default 42'),
    suffix: z
      .string()
      .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, 'must be at most 64 letters, digits, dots, dashes and underscores')
      .nullish()
      .describe('A name for the result'),
    metadata: Metadata.nullish().describe('Pairs of your own, returned with the job'),
    svc: z
      .strictObject({
        gpu_preference: z
          .string()
          .min(1)
          .max(256)
          .nullish()
          .describe(
            'A GPU type, or several with commas, the best one first. Another type is taken if none of them is free',
          ),
        max_budget_usd: z
          .number()
          .nullish()
          .describe('Required: the job never costs more. It is held until the job ends; the rest is given back'),
      })
      .nullish()
      .describe('Members beyond those of official clients, which pass them on'),
  })
  .meta({ id: 'CreateFineTuningJob' });
export type CreateFineTuningJob = z.infer<typeof CreateFineTuningJob>;

export const FineTuningJob = z
  .strictObject({
    id: z.string().describe('`ftjob_...`'),
    object: z.literal('fine_tuning.job').describe('Always `fine_tuning.job`'),
    model: z.string().describe('The base model'),
    created_at: unixSeconds.describe('Unix seconds'),
    finished_at: unixSeconds.nullable().describe('Unix seconds; null until the job has ended'),
    status: FineTuningStatus.describe('`succeeded`, `failed` and `cancelled` are final'),
    training_file: z.string().describe('The id of the file'),
    result_files: z
      .array(z.string())
      .describe(
        'Presigned URLs of the files of the adapter, new at each read and good for 15 minutes. Empty until there are some',
      ),
    error: z
      .strictObject({
        code: z.string().describe('Stable identifier of the error; branch on this one'),
        message: z.string().describe('What went wrong'),
        param: z.string().nullable().describe('The member of the request at fault, if there is one'),
      })
      .nullable()
      .describe('Null unless the job failed'),
    fine_tuned_model: z.null().describe('Always null: the result is the files'),
    metadata: z.record(z.string(), z.string()).describe('As it was sent'),
    method: FineTuningMethod.describe('How it is trained'),
    seed: z.int().describe('The seed in use'),
    suffix: z.string().nullable().describe('As it was sent'),
    svc: z
      .strictObject({
        max_budget_usd: z.number().describe('As it was sent'),
        gpu_preference: z.string().nullable().describe('As it was sent'),
        cost_usd: z.number().describe('What was charged so far'),
      })
      .describe('Members beyond those of official clients'),
  })
  .meta({ id: 'FineTuningJob' });
export type FineTuningJob = z.infer<typeof FineTuningJob>;

const hasMore = z.boolean().describe('Whether there is a next page');
const list = z.literal('list').describe('Always `list`');

export const FineTuningJobList = z.strictObject({
  object: list,
  data: z.array(FineTuningJob).describe('The jobs of this page, newest first'),
  has_more: hasMore,
});

export const FineTuningEvent = z
  .strictObject({
    id: z.string().describe('`ftevent_...`'),
    object: z.literal('fine_tuning.job.event').describe('Always `fine_tuning.job.event`'),
    created_at: unixSeconds.describe('Unix seconds'),
    level: z.enum(['info', 'warn', 'error']).describe('How serious it is'),
    message: z.string().describe('What happened'),
    type: z.enum(['message', 'metrics']).describe('`metrics` has its figures in `data`'),
    data: z
      .record(z.string(), z.union([z.string(), z.number()]))
      .describe(
        'For metrics: `step`, `total_steps`, `loss`, `eta_seconds` and others, as far as the trainer reports them',
      ),
  })
  .meta({ id: 'FineTuningEvent' });
export type FineTuningEvent = z.infer<typeof FineTuningEvent>;

export const FineTuningEventList = z.strictObject({
  object: list,
  data: z.array(FineTuningEvent).describe('The events of this page'),
  has_more: hasMore,
});

export const FineTuningCheckpoint = z
  .strictObject({
    id: z.string().describe('`ftckpt_...`'),
    object: z.literal('fine_tuning.job.checkpoint').describe('Always `fine_tuning.job.checkpoint`'),
    created_at: unixSeconds.describe('Unix seconds'),
    fine_tuning_job_id: z.string().describe('The job'),
    fine_tuned_model_checkpoint: z.null().describe('Always null: checkpoints are not served'),
    step_number: z.int().describe('The step after which it was written'),
    metrics: z
      .strictObject({
        step: z.int().describe('The step again'),
        train_loss: z.number().optional().describe('The loss at that step, if the trainer has reported it'),
      })
      .describe('The figures at that step'),
  })
  .meta({ id: 'FineTuningCheckpoint' });
export type FineTuningCheckpoint = z.infer<typeof FineTuningCheckpoint>;

export const FineTuningCheckpointList = z.strictObject({
  object: list,
  data: z.array(FineTuningCheckpoint).describe('The stored checkpoints, newest first'),
  first_id: z.string().nullable().describe('Null if the page is empty'),
  last_id: z.string().nullable().describe('What `after` of the next page is'),
  has_more: hasMore,
});

const { limit } = pageParameters;
const after = z.string().max(64).optional().describe('The id of the last entry of the page before');

export const FineTuningQuery = z.strictObject({ after, limit });
export const FineTuningEventsQuery = z.strictObject({
  after,
  limit,
  order: z
    .enum(['asc', 'desc'])
    .default('desc')
    .describe('To follow a job: `asc`, and `after` with the last id that you have'),
});

export const FineTuningQuote = z
  .strictObject({
    object: z.literal('fine_tuning.quote').describe('Always `fine_tuning.quote`'),
    model: z.string().describe('The base model, as a job names it'),
    estimated_tokens: z.int().describe('Tokens of all epochs'),
    min_usd: z.number().describe('What the job costs on a fast machine'),
    max_usd: z.number().describe('What it costs on a slow one: a good budget'),
    min_budget_usd: z.number().describe('The smallest `svc.max_budget_usd`'),
  })
  .meta({ id: 'FineTuningQuote' });
export type FineTuningQuote = z.infer<typeof FineTuningQuote>;

export const FineTuningQuoteList = z.strictObject({
  object: list,
  data: z.array(FineTuningQuote).describe('One for each base model, by name'),
});
