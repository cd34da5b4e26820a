// Specification 2.10 Model and 4.8 Inference: what models are, and what calls of them take and answer; their rules and tests.
import type { RowsBySection } from '../spec-rows.ts';

export const MODELS_AND_CALLS_ROWS: RowsBySection = {
  '4.8': [
    [
      'POST /v1/chat/completions answers a completion',
      'contract/chat.store.test.ts',
      'has the members of the specification, and nothing of the server',
    ],
    [
      'stream true gives server-sent events, framed and ended by [DONE]',
      'contract/chat-stream.test.ts',
      'is a role, the text, a reason, and [DONE], each of the same completion',
    ],
    [
      'A model_not_found during streaming is the final SSE error event before [DONE]',
      'contract/chat-stream.test.ts',
      'but a model that is not found is the final event before [DONE]',
    ],
    [
      'stream_options: include_usage tells the usage, and only a stream takes it',
      'contract/chat.store.test.ts',
      'with stream_options if there is no stream',
    ],
    [
      'POST /v1/images/generations: model and prompt are required, n defaults to 1, size is <W>x<H>',
      'contract/model-images.store.test.ts',
      'of %s with %j cost exactly %d microcents',
    ],
    [
      'response_format of images is b64_json, the default; url is rejected with invalid_request_error',
      'contract/model-images.store.test.ts',
      'for a url',
    ],
    [
      'POST /v1/videos/{id}/cancel answers the job, a terminal one unchanged',
      'contract/video-files.store.test.ts',
      'leaves a job as it is that is over',
    ],
    [
      'Most video models take no size; undeclared parameters are rejected',
      'contract/videos.store.test.ts',
      'for a size if the model declares none',
    ],
    [
      'POST /v1/embeddings: input is one string or an array of up to 2048',
      'contract/embeddings.store.test.ts',
      'are made of up to 2048 texts; more are refused with the limit',
    ],
    ['Token-id arrays are unsupported as input', 'contract/embeddings.store.test.ts', 'with what is not valid: %j'],
    [
      'encoding_format is float, the default; base64 is rejected with unsupported_parameter',
      'contract/embeddings.store.test.ts',
      'for base64, with what to tell the official client',
    ],
    [
      'dimensions for models that support them; user is an opaque string',
      'contract/embeddings.store.test.ts',
      'have as many dimensions as are asked for, if the model supports it',
    ],
    [
      'One vector per input in request order',
      'contract/embeddings.store.test.ts',
      'of many texts come in their order, asked for as many at once as the server takes, and are one charge',
    ],
    [
      'Embeddings are billed up to the next whole cent per request, one cent at least',
      'contract/embeddings.store.test.ts',
      'cost a cent at least, and otherwise whole cents, rounded up',
    ],
    [
      'A chat model id in embeddings is 404 model_not_found',
      'contract/embeddings.store.test.ts',
      'for the model %s: 404 model_not_found',
    ],
    [
      'max_tokens is at least 1',
      'contract/chat.store.test.ts',
      'with max_tokens as the caller has said, up to what the model allows',
    ],
    [
      'seconds has its bounds and default from the model',
      'contract/videos.store.test.ts',
      'for the %s %j, and %j is taken',
    ],
    [
      'GET /v1/videos is a page of video jobs',
      'contract/video-files.store.test.ts',
      'pages by after and by cursor alike, from new to old or from old to new',
    ],
    [
      'GET /v1/videos/{id}/content is the mp4 file',
      'contract/video-files.store.test.ts',
      'is video/mp4 with its length, whatever a client accepts, and in parts for a Range',
    ],
    [
      'POST /v1/videos takes an Idempotency-Key',
      'contract/videos.store.test.ts',
      'makes one job and one hold of equal requests, answered alike',
    ],
    [
      'temperature and max_tokens may be null',
      'contract/chat.store.test.ts',
      'without members that are null, known or not',
    ],
    ['GET /v1/models takes modality', 'contract/models.test.ts', 'of the modality %s'],
    [
      'GET /v1/models/{id} finds a model by its id or an alias, the slash written either way',
      'contract/models.test.ts',
      'is found as %s',
    ],
    ['The suffix :economy selects the economy tier', 'control-plane/models/catalog.test.ts', '%s for %s: %s'],
  ],
  '2.10': [
    [
      'pricing of a chat model: currency, input_per_1m_tokens_cents and output_per_1m_tokens_cents',
      'contract/models.test.ts',
      'has the members of the specification',
    ],
    [
      'aliases, author, category, context_length, created and supported_parameters are there if they are known',
      'contract/models.test.ts',
      'has the members of the specification',
    ],
    [
      'category mirrors modality',
      'contract/models.test.ts',
      'has all of them at once, by id, with nothing of their servers',
    ],
    [
      'parameters of image and video models; per_video_second_microcents is exact, per_video_second_cents rounds down',
      'contract/models.test.ts',
      'shows exact prices, and whole cents rounded down beside them',
    ],
    [
      'per_mpxl_microcents excludes the fields per image',
      'control-plane/models/catalog.test.ts',
      'priced %s with the parameters %s: %s',
    ],
    [
      'status coming_soon: the model is shown and cannot be called',
      'control-plane/models/catalog.test.ts',
      '%s for %s: %s',
    ],
    [
      'A model has id, object, owned_by, modality, status and pricing, and the optional members that are known of it',
      'contract/models.test.ts',
      'has the members of the specification',
    ],
    [
      'per_image_microcents is exact, per_image_cents rounds sub-cent prices to 0',
      'contract/models.test.ts',
      'shows exact prices, and whole cents rounded down beside them',
    ],
    [
      'per_video_microcents is of a representative clip: shown beside the price per second, never billed',
      'control-plane/models/catalog.test.ts',
      'is priced by the second, and may show the price of a representative clip beside that, never alone',
    ],
    [
      'pricing tells what an economy tier costs, and <id>:economy is found with its prices',
      'contract/models.test.ts',
      'lists what its economy tier costs, and answers for that tier alone by its name',
    ],
    [
      'fine_tunable and fine_tune_base_model: absent or false means that no job can fine-tune it',
      'contract/models.test.ts',
      'has the members of the specification',
    ],
    [
      'A model list is {object: list, data}',
      'contract/models.test.ts',
      'has all of them at once, by id, with nothing of their servers',
    ],
  ],
};
