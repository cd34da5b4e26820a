// Models as customers see them (specification 2.10).
import { z } from 'zod';

export const Modality = z.enum(['chat', 'image', 'video', 'embedding']);
export type Modality = z.infer<typeof Modality>;

export const ModelStatus = z.enum(['active', 'coming_soon', 'deprecated']);

const amount = z.int().min(0);

const ModelPricing = z.strictObject({
  currency: z
    .string()
    .optional()
    .describe('Always USD. A cent is a hundredth of a dollar. A microcent is a millionth of a cent'),
  input_per_1m_tokens_cents: amount.optional().describe('Price for a million tokens of the prompt'),
  output_per_1m_tokens_cents: amount.optional().describe('Price for a million tokens of the answer'),
  min_charge_cents: amount
    .optional()
    .describe(
      'What each request costs at least. Only models for embeddings have it: their requests are charged in whole cents',
    ),
  economy_input_per_1m_tokens_cents: amount
    .optional()
    .describe(
      'Price for a million tokens of the prompt in the economy tier, `<id>:economy`. Absent if the model has no economy tier',
    ),
  economy_output_per_1m_tokens_cents: amount
    .optional()
    .describe('Price for a million tokens of the answer in the economy tier. Absent if the model has no economy tier'),
  training_gpu_second_microcents: amount
    .optional()
    .describe('Exact price for a second of one GPU of a fine-tuning job. Absent if the model cannot be fine-tuned'),
  training_gpus: amount.optional().describe('GPUs of a fine-tuning job'),
  per_image_cents: amount.optional().describe('Price for an image, rounded down to whole cents'),
  per_image_microcents: amount.optional().describe('Exact price for an image'),
  per_mpxl_microcents: amount
    .optional()
    .describe('Price for a megapixel of output. A model with this price has no price per image'),
  per_video_microcents: amount
    .optional()
    .describe('Price for a typical clip, to compare models. A clip is billed by its seconds'),
  per_video_second_cents: amount.optional().describe('Price for a second of output video, rounded down to whole cents'),
  per_video_second_microcents: amount.optional().describe('Exact price for a second of output video'),
});

/** A parameter of an image or video model. */
export const ModelParameter = z.strictObject({
  name: z.string().min(1).describe('Member of the request'),
  type: z.enum(['enum', 'int', 'string', 'bool']).describe('Type of the value'),
  default: z.union([z.string(), z.int(), z.boolean()]).optional().describe('Its value if the request has none'),
  enum: z.array(z.string()).optional().describe('All values that it takes'),
  min: z.int().optional().describe('Least value'),
  max: z.int().optional().describe('Greatest value'),
});

export const Model = z
  .strictObject({
    id: z.string().describe('Canonical id, `<namespace>/<model>`'),
    object: z.literal('model').describe('Always `model`'),
    owned_by: z.string().describe('Who provides it here'),
    modality: Modality.describe('What it makes'),
    status: ModelStatus.describe('`coming_soon` cannot be called yet, `deprecated` still can'),
    pricing: ModelPricing.describe('What a call costs'),
    aliases: z.array(z.string()).optional().describe('Other ids with which calls may name the model'),
    author: z.string().optional().describe('Who made it'),
    category: Modality.optional().describe('The same as `modality`'),
    context_length: z.int().optional().describe('Maximum number of tokens of the prompt and the answer together'),
    max_output_tokens: z
      .int()
      .optional()
      .describe(
        'Longest answer of a chat model, in tokens. A chat without `max_tokens` may be as long, and that much is held for it',
      ),
    created: z.int().optional().describe('When the model was created, in Unix seconds'),
    fine_tunable: z.boolean().optional().describe('Whether jobs can fine-tune it; absent means false'),
    fine_tune_base_model: z
      .string()
      .optional()
      .describe('The value of `model` in a fine-tuning job. Present only if `fine_tunable` is true'),
    parameters: z.array(ModelParameter).optional().describe('What requests for an image or a video may set'),
    cold_start_seconds: z
      .strictObject({
        p50: z.number().min(0).describe('Half of the starts took at most this many seconds'),
        p95: z.number().min(0).describe('95 of 100 starts took at most this many seconds'),
      })
      .optional()
      .describe('How many seconds the economy tier took to start. A call waits for the start and never pays for it'),
    supported_parameters: z
      .array(z.string())
      .optional()
      .describe('Fields of a request for a chat or an embedding that the model accepts'),
  })
  .meta({ id: 'Model' });
export type Model = z.infer<typeof Model>;

export const ModelList = z.strictObject({
  object: z.literal('list').describe('Always `list`'),
  data: z.array(Model).describe('All models, by id'),
});

export const ModelsQuery = z.strictObject({
  modality: Modality.optional().describe('Only models of this modality'),
});
