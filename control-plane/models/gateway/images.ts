// Images: made while the caller waits, returned as base64, charged per image or per megapixel.
//
// Servers of images make them to the end, also if nobody waits any more. So a caller that leaves keeps its slot and the server's place until then,
// and pays. Otherwise one key could let servers make any number of images for nothing.
import { z } from 'zod';
import type { ImagesRequest, ImagesResponse } from '../../../shared/api/images.ts';
import { fail, failField } from '../../../shared/errors.ts';
import { IMAGES_ANSWER_BYTES_MAX, UPSTREAM_JSON_VALUES_MAX } from '../../../shared/limits.ts';
import type { Call, Reply } from '../../base/http/route.ts';
import type { Callable, Catalog } from '../catalog/catalog.ts';
import { failUnsupported, imagesMax, sizesOf } from '../catalog/parameters.ts';
import { usedOutcome } from './states.ts';
import { imagesUcents } from './price.ts';
import { jsonOf } from '../../base/outbound/outbound.ts';
import { receiptHeader } from './requests.ts';
import { askWhole, type CallDeps } from './whole-answer.ts';

export type ImagesCall = Pick<Call<undefined, undefined, ImagesRequest>, 'caller' | 'requestId' | 'gone' | 'body'>;

/** @throws ServiceError if the request is refused or fails */
export async function makeImages(call: ImagesCall, deps: CallDeps): Promise<Reply> {
  const { prompt, n } = call.body;
  const { callable, size } = planImages(call.body, deps.catalog);
  const ucents = imagesUcents({ count: n, size }, callable.pricing);
  return deps.requests.serve({ ...call, callable, boundUcents: ucents }, async (open) => {
    const upstreamRequest = {
      callable,
      path: '/images/generations',
      body: () => ({ prompt, n, response_format: 'b64_json', ...(size === undefined ? {} : { size }) }),
      attempts: open.attempts,
      orgId: call.caller.orgId,
      startedMs: deps.clock.monotonicMs(),
      signal: open.signal,
      cancel: open.stopping,
    };
    const reading = { bytesMax: IMAGES_ANSWER_BYTES_MAX, read: (text: string) => readImages(text, n) };
    const { answer: data, upstream } = await askWhole(upstreamRequest, reading, deps);
    const ending = open.signal.aborted ? 'client_left' : 'completed';
    await open.close(usedOutcome(ending, { ucents, images: n, countedBy: 'upstream', upstream: upstream.base_url }));
    const created = Math.floor(deps.clock.now() / 1000);
    const body: ImagesResponse = { created, data, usage: { image_count: n } };
    return { status: 200, headers: receiptHeader(open), body };
  });
}

/** @throws ServiceError `model_not_found`, `invalid_request`, `unsupported_parameter`, `validation_failed` */
function planImages(body: ImagesRequest, catalog: Catalog): { callable: Callable; size: string | undefined } {
  if (body.response_format === 'url') {
    fail('invalid_request', {
      detail: 'response_format must be b64_json: images are not kept, so there is no url of one.',
      errors: [{ field: 'response_format', rule: 'must be b64_json' }],
    });
  }
  if (body.response_format !== 'b64_json') failField('response_format', 'must be b64_json');
  const callable = catalog.callable(body.model, 'image');
  const [standard, ...more] = sizesOf(callable.model);
  const { size = standard } = body;
  if (standard === undefined && size !== undefined) failUnsupported('size', callable.model);
  if (size !== standard && !more.includes(size ?? ''))
    failField('size', `must be one of ${[standard, ...more].join(', ')} for ${callable.model.id}`);
  if (size !== undefined && body.n > imagesMax(size)) failField('n', `must be at most ${imagesMax(size)} for ${size}`);
  return { callable, size };
}

const UpstreamImages = z.object({ data: z.array(z.object({ b64_json: z.string().refine(isBase64) })) });

/** Undefined if there are not exactly `count` images. */
function readImages(text: string, count: number): { b64_json: string }[] | undefined {
  const parsed = UpstreamImages.safeParse(jsonOf(text, UPSTREAM_JSON_VALUES_MAX));
  return parsed.success && parsed.data.data.length === count ? parsed.data.data : undefined;
}

const ALPHABET = Buffer.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/');
/** 1 at the code of each character of the alphabet. */
const IN_ALPHABET = Uint8Array.from({ length: 128 }, (_, code) => Number(ALPHABET.includes(code)));

/**
 * Looks at each character by itself. A regular expression on the largest images has failed now and then, because V8 had no room left on its stack.
 */
function isBase64(text: string): boolean {
  const padding = text.endsWith('==') ? 2 : Number(text.endsWith('='));
  const length = text.length - padding;
  for (let i = 0; i < length; i += 1) if (IN_ALPHABET[text.charCodeAt(i)] !== 1) return false;
  return length > 0;
}
