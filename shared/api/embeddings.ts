// Embeddings (specification 2.14, 4.8): the request and the answer.
import { z } from 'zod';
import { withoutNothings } from './nothings.ts';
import { User } from './receipt.ts';

const EmbeddingsFields = z.strictObject({
  model: z.string().min(1).max(256).describe('Id or alias of an embedding model'),
  input: z
    .union([z.string().min(1), z.array(z.string().min(1)).min(1)])
    .describe('One text, or up to 2048 of them. Lists of token ids are not supported'),
  // The schema accepts any text, because `base64` is refused later with a message of its own.
  encoding_format: z
    .string()
    .default('float')
    .meta({ enum: ['float'] })
    .describe('Only `float`, vectors as numbers'),
  dimensions: z.int().min(1).max(65_536).optional().describe('Length of a vector; if the model supports it'),
  user: User.optional(),
});
export type EmbeddingsRequest = z.infer<typeof EmbeddingsFields>;

export const EmbeddingsRequest = z.preprocess((body) => withoutNothings(body, {}), EmbeddingsFields);

const Embedding = z
  .strictObject({
    object: z.literal('embedding').describe('Always `embedding`'),
    embedding: z.array(z.number()).describe('The vector'),
    index: z.int().describe('Position of its text in the input'),
  })
  .meta({ id: 'Embedding' });

export const EmbeddingsResponse = z
  .strictObject({
    object: z.literal('list').describe('Always `list`'),
    data: z.array(Embedding).describe('One for each text, in the order of the input'),
    model: z.string().describe('Canonical id of the model'),
    usage: z
      .strictObject({
        prompt_tokens: z.int().describe('Tokens of all texts'),
        total_tokens: z.int().describe('The same number as `prompt_tokens`'),
      })
      .describe('What is billed'),
  })
  .meta({ id: 'EmbeddingsResponse' });
export type EmbeddingsResponse = z.infer<typeof EmbeddingsResponse>;
