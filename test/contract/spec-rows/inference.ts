// Specification of serverless inference (2.11 to 2.14, 3.3, 7.3 and what belongs to it): its rules and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const INFERENCE_ROWS: RowsBySection = {
  '2.11': [
    [
      'A choice has index, message and finish_reason',
      'contract/chat.store.test.ts',
      'has the members of the specification, and nothing of the server',
    ],
    [
      'A chat completion has id, object, created, model, choices and usage; model is the canonical id, never an upstream path',
      'contract/chat.store.test.ts',
      'has the members of the specification, and nothing of the server',
    ],
    [
      'role is system, user or assistant, content a string',
      'contract/chat.store.test.ts',
      'with what is not valid: %j',
    ],
    [
      'finish_reason is stop, length, content_filter or tool_calls',
      'contract/chat.store.test.ts',
      'may end for the reason %s',
    ],
  ],
  '1': [
    [
      'Billing is per image, or per megapixel of it',
      'contract/model-images.store.test.ts',
      'of %s with %j cost exactly %d microcents',
    ],
    [
      'Billing is per second of output video',
      'contract/videos.store.test.ts',
      'for %s with %j is %d microcents, whole cents rounded up once: held from the start, charged once it is completed',
    ],
    [
      'Tool calling, JSON mode and structured outputs are rejected and never silently ignored',
      'contract/chat.store.test.ts',
      'with what is not supported: %j, by name',
    ],
    [
      'What asks for nothing is accepted by a list, whatever else of the kind is refused by its name',
      'contract/chat.store.test.ts',
      'with %s of any value that asks for something, by name',
    ],
    ['Billing is per token', 'contract/chat.store.test.ts', 'costs its tokens exactly, and leaves a receipt'],
    [
      'Billing is per token, also if the server has not counted',
      'control-plane/models/tokenizer.test.ts',
      'that %s has not counted is counted by its tokenizer, and the receipt says so',
    ],
    [
      'Economy is cheaper: never above the serverless price',
      'control-plane/models/catalog.test.ts',
      'with an economy price above the serverless one is refused',
    ],
    [
      'The bare model id is serverless, :economy the economy tier at its own price',
      'contract/chat.store.test.ts',
      'of the model named %s is by its canonical id, at the price of its tier',
    ],
  ],
  '2.15': [
    [
      'FileObject has id, object, bytes, created_at in Unix seconds, filename and purpose; the storage location is not exposed',
      'contract/files.store.test.ts',
      'is a file with the members of the specification, and nothing of where it is stored',
    ],
    ['The purpose of a file is fine-tune', 'contract/files.store.test.ts', '%s: 422 names it'],
  ],
  '2.12': [
    [
      'An image response is {created, data: [{b64_json}], usage: {image_count}}; image_count is the metered unit',
      'contract/model-images.store.test.ts',
      'have the members of the specification, and nothing of the server',
    ],
  ],
  '2.13': [
    [
      'A job has model, status, progress, seconds, created_at, completed_at and expires_at',
      'contract/videos.store.test.ts',
      'has the fields of the specification, is answered at once with 202, and its server receives the request',
    ],
    [
      'status is queued, in_progress or completed; progress goes up to 100',
      'contract/videos.store.test.ts',
      'goes from queued by in_progress to completed, and shows nothing of its server',
    ],
    ['status is failed', 'contract/videos.store.test.ts', 'that fails says why in our words, and costs nothing'],
    [
      'status is cancelled',
      'contract/video-files.store.test.ts',
      'ends a job that is queued or in progress, gives its money back, and ends the work of its server',
    ],
    ['status is expired', 'contract/video-files.store.test.ts', 'is 410 expired from 24 hours on, and no sooner'],
    [
      'A video job has the members of the specification; id is vid_<id>, object video, times are Unix seconds',
      'contract/videos.store.test.ts',
      'has the fields of the specification, is answered at once with 202, and its server receives the request',
    ],
    [
      'cost_cents is the authoritative final charge: whole cents, rounded up once for the job, and cost the same sum',
      'contract/videos.store.test.ts',
      'for %s with %j is %d microcents, whole cents rounded up once: held from the start, charged once it is completed',
    ],
    [
      'cost_cents is the final charge and stays after the artifact expires',
      'contract/videos.store.test.ts',
      'stays with the job after its file has expired',
    ],
  ],
  '3.3': [
    [
      'POST /v1/videos is accepted as queued with 202; queued to in_progress to completed, retained 24 hours',
      'contract/videos.store.test.ts',
      'goes from queued by in_progress to completed, and shows nothing of its server',
    ],
    [
      'queued or in_progress to failed: never billed',
      'contract/videos.store.test.ts',
      'that fails says why in our words, and costs nothing',
    ],
    [
      'queued or in_progress to cancelled if the output is not committed: never billed',
      'contract/video-files.store.test.ts',
      'ends a job that is queued or in progress, gives its money back, and ends the work of its server',
    ],
    [
      'A cancel of a terminal job leaves it unchanged',
      'contract/video-files.store.test.ts',
      'leaves a job as it is that is over',
    ],
    [
      'A cancel once the output is committed leaves the job unchanged',
      'contract/video-files.store.test.ts',
      'leaves a job as it is whose video is finished and still on its way here',
    ],
    [
      'completed to expired after 24 hours: cost_cents stays, /content is 410',
      'contract/video-files.store.test.ts',
      'is 410 expired from 24 hours on, and no sooner',
    ],
    [
      'A job that expired before a server began says so',
      'contract/video-files.store.test.ts',
      'of a job that no server began with is 410 and says so, and so does the job',
    ],
    [
      'A never-started job expires about 2 hours after submission, unbilled',
      'control-plane/models/video-engine.store.test.ts',
      'expires unbilled two hours after it was submitted, and is removed from its server',
    ],
  ],
  '2.14': [
    [
      'An Embedding has object, embedding and index, its position in the input',
      'contract/embeddings.store.test.ts',
      'of many texts come in their order, asked for as many at once as the server takes, and are one charge',
    ],
    [
      'EmbeddingsResponse has object, data, model and usage; total_tokens equals prompt_tokens',
      'contract/embeddings.store.test.ts',
      'of one text have the members of the specification',
    ],
  ],
  '8': [
    [
      'Video retention: 24 hours after completion; a never-started job expires about 2 hours after submission',
      'control-plane/models/video-plan.test.ts',
      '%s',
    ],
    [
      'Embeddings input: at most 2048 strings',
      'contract/embeddings.store.test.ts',
      'are made of up to 2048 texts; more are refused with the limit',
    ],
    [
      'Embeddings response: at most 64 MiB',
      'contract/embeddings.store.test.ts',
      'vectors of up to 64 MiB over all batches are passed on; more are 502, not to be sent again',
    ],
    [
      'Embeddings minimum charge: 1 cent per request',
      'contract/embeddings.store.test.ts',
      'cost a cent at least, and otherwise whole cents, rounded up',
    ],
  ],
  '6.5': [
    [
      'Streaming chat ends with an SSE error event for an error mid-stream, and then [DONE]',
      'control-plane/models/stream-endings.store.test.ts',
      '%s: an error event, [DONE], and it costs nothing',
    ],
  ],
  '7.1': [
    [
      'Whatever an inference endpoint refuses is the envelope',
      'contract/requests.store.test.ts',
      '%s: whatever JSON comes is never an error of ours',
    ],
    ['Unknown inference paths are the envelope', 'contract/models.test.ts', 'where there is nothing: %s'],
  ],
  '7.3': [
    [
      'unsupported_parameter is 400 invalid_request_error; param names the parameter, the message the version',
      'control-plane/base/http/refusals.test.ts',
      '400 unsupported_parameter names the unknown member first: %j',
    ],
    [
      'A missing or invalid key is 401',
      'control-plane/base/http/refusals.test.ts',
      '401 invalid_api_key without a key, as Bearer',
    ],
    [
      'A key that lacks the scope is 403',
      'control-plane/base/http/refusals.test.ts',
      '403 insufficient_scope names the scope',
    ],
    [
      'insufficient balance is 402',
      'control-plane/base/http/refusals.test.ts',
      '402 insufficient_balance tells clients not to retry',
    ],
    [
      'A request that fails validation is 422',
      'control-plane/base/http/refusals.test.ts',
      '422 validation_failed names the member by its path',
    ],
    [
      'request_too_large',
      'control-plane/base/http/refusals.test.ts',
      '413 request_too_large above the limit of the route, which it names; a body at the limit is read',
    ],
    [
      'rate_limit_exceeded in the envelope',
      'control-plane/base/http/refusals.test.ts',
      '429 rate_limit_exceeded with Retry-After',
    ],
    [
      'rate_limit_exceeded is the per-second rate limit of the API key: 429, where 503 is our own lack',
      'control-plane/base/http/limits.test.ts',
      'a key may send its burst, then gets 429 with the time to wait, and may send one request as soon as that is over',
    ],
    [
      'An internal error is 500',
      'control-plane/base/http/refusals.test.ts',
      '500 internal_error quotes the request id and nothing of the bug',
    ],
    ['model_not_found is 404', 'contract/models.test.ts', 'is not found as %s'],
    [
      'model_not_found for a model that is absent, coming soon, or not for chat',
      'contract/chat.store.test.ts',
      'for the model %s, which cannot be called: 404 model_not_found',
    ],
    [
      'stream_limit_exceeded: too many inference requests open at once on this API key',
      'control-plane/models/money.store.test.ts',
      'each key may have a number of open requests, and an ended or refused request frees its slot',
    ],
    [
      'upstream_unavailable is 503 with Retry-After: serving capacity degraded',
      'control-plane/models/failover.test.ts',
      'two more at most, and then the answer is 503 with the Retry-After of the last one',
    ],
    [
      'upstream_unavailable is returned promptly',
      'control-plane/models/servers-out.test.ts',
      'that %s makes it rest after the fifth',
    ],
    [
      '504: the upstream exceeded the deadline',
      'control-plane/models/failover.test.ts',
      'if the server is silent: 504 at its time limit, not to be sent again, and the request to the server is cancelled',
    ],
    [
      'An undeclared video parameter is 400 invalid_request_error',
      'contract/videos.store.test.ts',
      'for %s, which the model does not declare: 400 invalid_request_error, by its name',
    ],
    [
      'expired is 410: the video artifact has expired',
      'contract/video-files.store.test.ts',
      'is 410 expired from 24 hours on, and no sooner',
    ],
    ['response_format url is 400 invalid_request_error', 'contract/model-images.store.test.ts', 'for a url'],
    [
      'An oversized embeddings batch is 400 invalid_request_error; the message states the limit',
      'contract/embeddings.store.test.ts',
      'are made of up to 2048 texts; more are refused with the limit',
    ],
    ['upstream_error is 502: a misaligned response', 'contract/embeddings.store.test.ts', '%s'],
    ['upstream_error is 502: a malformed response', 'control-plane/models/failover.test.ts', 'where the first %s'],
    [
      'upstream_response_too_large is 502 and not retryable',
      'control-plane/models/failover.test.ts',
      'if the answer is too large: 502, not to be sent again; at the bound it is read',
    ],
    [
      'insufficient balance: the most that a request can cost must be there',
      'control-plane/models/money.store.test.ts',
      'that just covers the most that a request can cost is enough; a microcent less is 402',
    ],
  ],
};
