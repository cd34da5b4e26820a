// Images (specification 2.12, 4.8): the request and the answer.
import { z } from 'zod';
import { IMAGES_MAX } from '../limits.ts';
import { withoutNothings } from './nothings.ts';
import { User } from './receipt.ts';

const ImagesFields = z.strictObject({
  model: z.string().min(1).max(256).describe('Id or alias of an image model'),
  prompt: z.string().min(1).max(32_000).describe('What the image shows'),
  n: z.int().min(1).max(IMAGES_MAX).default(1).describe('How many images'),
  size: z
    .string()
    .regex(/^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$/, 'must be like 1024x1024')
    .optional()
    .describe(
      'One of the sizes that `parameters` of the model lists. If it is left out, the default size of the model is used',
    ),
  // The schema accepts any text, because `url` is refused later with a message of its own.
  response_format: z
    .string()
    .default('b64_json')
    .meta({ enum: ['b64_json'] })
    .describe('Only `b64_json` is accepted'),
  user: User.optional(),
});
export type ImagesRequest = z.infer<typeof ImagesFields>;

export const ImagesRequest = z.preprocess((body) => withoutNothings(body, {}), ImagesFields);

export const ImagesResponse = z
  .strictObject({
    created: z.int().describe('When the images were made, in Unix seconds'),
    data: z
      .array(z.strictObject({ b64_json: z.string().describe('The file of the image, as base64') }))
      .describe('The images'),
    usage: z
      .strictObject({ image_count: z.int().describe('Number of images that are billed') })
      .describe('What was used'),
  })
  .meta({ id: 'ImagesResponse' });
export type ImagesResponse = z.infer<typeof ImagesResponse>;
