// POST /v1/chat/completions, /v1/embeddings and /v1/images/generations (specification 4.8).
import { ChatCompletion, ChatCompletionChunk, ChatRequest, isPlainChat } from '../../../shared/api/chat.ts';
import { EmbeddingsRequest, EmbeddingsResponse } from '../../../shared/api/embeddings.ts';
import { CHAT_DEFAULTS, CHAT_NOTHINGS, nothingsText } from '../../../shared/api/nothings.ts';
import { ImagesRequest, ImagesResponse } from '../../../shared/api/images.ts';
import { INFERENCE_BODY_BYTES_MAX } from '../../../shared/limits.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Gateway } from './gateway.ts';

const RECEIPT = { 'X-Receipt-Id': 'Identifies what was charged for the request' };
const MONEY_ERRORS = ['insufficient_balance', 'stream_limit_exceeded'] as const;
const UPSTREAM_ERRORS = [
  'upstream_error',
  'upstream_response_too_large',
  'upstream_unavailable',
  'upstream_timeout',
] as const;

export function gatewayRoutes({ gateway }: { gateway: Gateway }): Route[] {
  return [
    route({
      method: 'POST',
      path: '/v1/chat/completions',
      operationId: 'createChatCompletion',
      tag: 'Inference',
      summary: 'Complete a chat',
      description: CHAT_TEXT,
      scope: 'serverless:write',
      idempotency: 'none',
      spends: true,
      confirmsKey: true,
      bodyBytesMax: INFERENCE_BODY_BYTES_MAX,
      body: ChatRequest,
      isPlain: isPlainChat,
      responses: {
        200: {
          description: 'The answer',
          schema: ChatCompletion,
          eventSchema: ChatCompletionChunk,
          headers: RECEIPT,
        },
      },
      errors: ['model_not_found', 'context_length_exceeded', ...MONEY_ERRORS, ...UPSTREAM_ERRORS],
      handler: (call) => gateway.completeChat(call),
    }),
    route({
      method: 'POST',
      path: '/v1/embeddings',
      operationId: 'createEmbeddings',
      tag: 'Inference',
      summary: 'Make embeddings',
      description: EMBEDDINGS_TEXT,
      scope: 'serverless:write',
      idempotency: 'none',
      spends: true,
      confirmsKey: true,
      bodyBytesMax: INFERENCE_BODY_BYTES_MAX,
      body: EmbeddingsRequest,
      responses: { 200: { description: 'The embeddings', schema: EmbeddingsResponse, headers: RECEIPT } },
      errors: ['model_not_found', 'context_length_exceeded', ...MONEY_ERRORS, ...UPSTREAM_ERRORS],
      handler: (call) => gateway.embed(call),
    }),
    route({
      method: 'POST',
      path: '/v1/images/generations',
      operationId: 'createImages',
      tag: 'Inference',
      summary: 'Make images',
      description:
        'Answers when the images are there. Costs them at the price of the model, by the image or by the megapixel.',
      scope: 'serverless:write',
      idempotency: 'none',
      spends: true,
      confirmsKey: true,
      body: ImagesRequest,
      responses: { 200: { description: 'The images', schema: ImagesResponse, headers: RECEIPT } },
      errors: ['model_not_found', 'context_length_exceeded', ...MONEY_ERRORS, ...UPSTREAM_ERRORS],
      handler: (call) => gateway.makeImages(call),
    }),
  ];
}

const CHAT_TEXT = `Costs what \`usage\` says at the prices of the model. While it runs, the most that it can cost is held: the bytes of the messages
as tokens, and \`max_tokens\`. What is not used is given back at the end, all of it where there is no answer.

With \`"stream": true\` the answer comes as server-sent events: a chunk with the role, chunks with text, one with the reason of the end, with
\`include_usage\` one that tells the usage, and \`data: [DONE]\`. What fails on the way is an event \`{"error": ...}\` before \`[DONE]\`, and costs
nothing; a caller who leaves pays for what was said until then. A model that is not found is such an event, too. Lines that begin with a
colon are signs of life.

Tools, JSON mode and whatever else is not below is refused by its name. These values ask for nothing, and are taken as if they were not there:

${nothingsText({ ...CHAT_NOTHINGS, ...CHAT_DEFAULTS })}

A model that supports \`top_p\` or a penalty gets the value that was sent.`;

const EMBEDDINGS_TEXT = `Costs the tokens of the texts at the price of the model, rounded up to the next whole cent for each request.

Vectors come as numbers. Official clients ask for another form unless they are told otherwise: pass \`encoding_format: "float"\`.`;
