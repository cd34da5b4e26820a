// Fine-tuning (specification 2.15, 4.8): jobs, their events and checkpoints, and what a job would cost.
import { z } from 'zod';
import { FINE_TUNING_METADATA_MAX } from '../limits.ts';
import { pageParameters } from './page.ts';

const unixSeconds = z.int();

const FineTuningStatus = z.enum(['validating', 'queued', 'running', 'succeeded', 'failed', 'cancelled']);

const Lora = z.strictObject({
  lora_r: z.int().min(1).max(256).default(16).describe('Rank of the adapter'),
  lora_alpha: z.int().min(1).max(1024).default(32).describe('Scale of the adapter'),
  lora_dropout: z
    .number()
    .min(0)
    .max(0.9)
    .default(0.05)
    .describe('Dropout of the adapter: the share that each training step leaves out'),
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
    model: z.string().min(1).max(256).describe('The `fine_tune_base_model` of a model from `GET /v1/models`'),
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
            'A GPU type, or several types separated by commas, the preferred type first. If none of them is free, another type is used',
          ),
        max_budget_usd: z
          .number()
          .nullish()
          .describe(
            'The job never costs more than this amount. The amount is held until the job ends, and what the job did not use is given back. If left out, it is the `max_usd` that the quote of the file names, and at least `min_budget_usd`',
          ),
      })
      .nullish()
      .describe('Fields that official clients do not know. Official clients pass them on'),
  })
  .meta({ id: 'CreateFineTuningJob' });
export type CreateFineTuningJob = z.infer<typeof CreateFineTuningJob>;

export const FineTuningJob = z
  .strictObject({
    id: z.string().describe('`ftjob_...`'),
    object: z.literal('fine_tuning.job').describe('Always `fine_tuning.job`'),
    model: z.string().describe('The base model'),
    created_at: unixSeconds.describe('When the job was created, in Unix seconds'),
    finished_at: unixSeconds.nullable().describe('When the job ended, in Unix seconds. Null until the job has ended'),
    status: FineTuningStatus.describe('`succeeded`, `failed` and `cancelled` are final'),
    training_file: z.string().describe('The id of the file'),
    result_files: z
      .array(z.string())
      .describe(
        'Presigned URLs of the files of the adapter. Each read gives new URLs, which are valid for 15 minutes. If the job failed or was cancelled, the last checkpoint if there is no result. Empty until the job has ended',
      ),
    error: z
      .strictObject({
        code: z.string().describe('Stable identifier of the error; branch on this one'),
        message: z.string().describe('What went wrong'),
        param: z
          .string()
          .nullable()
          .describe('The field of the request that caused the error. Null if no field caused it'),
      })
      .nullable()
      .describe('Why the job failed. Null unless the job failed'),
    fine_tuned_model: z.null().describe('Always null: the result is the files'),
    metadata: z.record(z.string(), z.string()).describe('The `metadata` of the request'),
    method: FineTuningMethod.describe('How it is trained'),
    seed: z.int().describe('The seed in use'),
    suffix: z.string().nullable().describe('The `suffix` of the request. Null if it had none'),
    svc: z
      .strictObject({
        max_budget_usd: z
          .number()
          .describe('What the job costs at most: the `max_budget_usd` of the request, or what was held without one'),
        gpu_preference: z.string().nullable().describe('The `gpu_preference` of the request. Null if it had none'),
        cost_usd: z.number().describe('What was charged so far'),
      })
      .describe('Fields that official clients do not know'),
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
    created_at: unixSeconds.describe('When the event happened, in Unix seconds'),
    level: z.enum(['info', 'warn', 'error']).describe('How serious it is'),
    message: z.string().describe('What happened'),
    type: z
      .enum(['message', 'metrics'])
      .describe('Type of the event. An event of the type `metrics` has its figures in `data`'),
    data: z
      .record(z.string(), z.union([z.string(), z.number()]))
      .describe(
        'Figures of a `metrics` event: `step`, `total_steps`, `loss`, `eta_seconds` and others, if the trainer reports them',
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
    created_at: unixSeconds.describe('When the checkpoint was stored, in Unix seconds'),
    fine_tuning_job_id: z.string().describe('The job'),
    fine_tuned_model_checkpoint: z.null().describe('Always null: checkpoints are not served'),
    step_number: z.int().describe('The step after which it was written'),
    metrics: z
      .strictObject({
        step: z.int().describe('The same number as `step_number`'),
        train_loss: z.number().optional().describe('The loss at that step, if the trainer has reported it'),
      })
      .describe('The figures at that step'),
  })
  .meta({ id: 'FineTuningCheckpoint' });
export type FineTuningCheckpoint = z.infer<typeof FineTuningCheckpoint>;

export const FineTuningCheckpointList = z.strictObject({
  object: list,
  data: z.array(FineTuningCheckpoint).describe('The stored checkpoints, newest first'),
  first_id: z.string().nullable().describe('Id of the first checkpoint of this page. Null if the page is empty'),
  last_id: z
    .string()
    .nullable()
    .describe(
      'Id of the last checkpoint of this page: send it as `after` to get the next page. Null if the page is empty',
    ),
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
    .describe(
      'Order by time; `desc` begins with the newest event. To follow a job, use `asc`, and send the last id that you have as `after`',
    ),
});

export const FineTuningQuote = z
  .strictObject({
    object: z.literal('fine_tuning.quote').describe('Always `fine_tuning.quote`'),
    model: z.string().describe('The base model, as a job names it'),
    estimated_tokens: z.int().describe('Tokens of all epochs'),
    min_usd: z.number().describe('Estimated cost of the job on a fast machine, in dollars'),
    max_usd: z
      .number()
      .describe(
        'Estimated cost of the job on a slow machine, in dollars. It is a good choice for `svc.max_budget_usd`',
      ),
    min_budget_usd: z.number().describe('The smallest `svc.max_budget_usd`'),
  })
  .meta({ id: 'FineTuningQuote' });
export type FineTuningQuote = z.infer<typeof FineTuningQuote>;

export const FineTuningQuoteList = z.strictObject({
  object: list,
  data: z.array(FineTuningQuote).describe('One for each base model, by name'),
});
