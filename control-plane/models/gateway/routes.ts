// POST /v1/chat/completions, /v1/embeddings and /v1/images/generations (specification 4.8), and the operator's route for the servers behind
// them.
import { ChatCompletion, ChatCompletionChunk, ChatRequest, isPlainChat } from '../../../shared/api/chat.ts';
import { EmbeddingsRequest, EmbeddingsResponse } from '../../../shared/api/embeddings.ts';
import { CHAT_DEFAULTS, CHAT_NOTHINGS, nothingsText } from '../../../shared/api/nothings.ts';
import { ImagesRequest, ImagesResponse } from '../../../shared/api/images.ts';
import { INFERENCE_BODY_BYTES_MAX } from '../../../shared/limits.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Gateway } from './gateway.ts';
import { AnyFields, listOf, operator } from '../../base/http/operator.ts';

const RECEIPT = { 'X-Receipt-Id': 'Id of the receipt, which has the charge for the request' };
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
      everywhere: true,
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
      everywhere: true,
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
        'The answer comes when the images are finished. The request costs the price of the model, by the image or by the megapixel.',
      scope: 'serverless:write',
      idempotency: 'none',
      everywhere: true,
      spends: true,
      confirmsKey: true,
      body: ImagesRequest,
      responses: { 200: { description: 'The images', schema: ImagesResponse, headers: RECEIPT } },
      errors: ['model_not_found', 'context_length_exceeded', ...MONEY_ERRORS, ...UPSTREAM_ERRORS],
      handler: (call) => gateway.makeImages(call),
    }),
  ];
}

export function upstreamsRoute(gateway: Pick<Gateway, 'servers'>): Route {
  return route({
    ...operator,
    method: 'GET',
    path: '/admin/upstreams',
    operationId: 'adminListUpstreams',
    summary:
      'List the model servers that this control plane has asked or checked since its start, and show which of them get no requests',
    responses: { 200: { description: 'All of them', schema: listOf(AnyFields) } },
    errors: [],
    handler: async () => ({
      status: 200,
      body: { data: gateway.servers().map(({ upstream, model, isOut }) => ({ upstream, model, is_out: isOut })) },
    }),
  });
}

const CHAT_TEXT = `The request costs the tokens in \`usage\` at the prices of the model. While it runs, its highest possible cost is held: one token
for each byte of the messages, and \`max_tokens\`. What is not used is given back at the end. If there is no answer, everything is given back.

With \`"stream": true\` the answer is a stream of server-sent events: a chunk with the role, chunks with text, a chunk with the \`finish_reason\`, a
chunk with the usage if \`include_usage\` is true, and \`data: [DONE]\`. If the request fails after the stream has begun, an event \`{"error": ...}\`
comes before \`[DONE]\`, and the request costs nothing. A model that is not found is also reported by such an event. A caller that disconnects pays
for the tokens until then, and so does a caller whose stream is ended after 30 minutes. Lines that begin with a colon only keep the connection open.

Tools, JSON mode and all other fields that are not listed below are refused, and the refusal names the field. These values have no effect. They are
treated as if they were absent:

${nothingsText({ ...CHAT_NOTHINGS, ...CHAT_DEFAULTS })}

A model that supports \`top_p\` or a penalty gets the value that was sent.`;

const EMBEDDINGS_TEXT = `The request costs the tokens of the texts at the price of the model. The cost of each request is rounded up to the next whole
cent.

Vectors are lists of numbers. Official clients request another form by default, so set \`encoding_format: "float"\`.`;
