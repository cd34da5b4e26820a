// Embeddings: sends texts in batches, returns one vector for each text in the order of the input, and makes one charge.
import { z } from 'zod';
import type { EmbeddingsRequest, EmbeddingsResponse } from '../../../shared/api/embeddings.ts';
import { fail, failField, ServiceError } from '../../../shared/errors.ts';
import {
  EMBEDDING_JSON_VALUES_MAX,
  EMBEDDINGS_ANSWER_BYTES_MAX,
  EMBEDDINGS_INPUTS_MAX,
} from '../../../shared/limits.ts';
import type { Call, Reply } from '../../base/http/route.ts';
import type { Callable, Catalog } from '../catalog/catalog.ts';
import type { Upstream } from '../catalog/models.ts';
import { type Used, usedOutcome } from './states.ts';
import { embeddingsBound, embeddingsUcents, estimatedTokens } from './price.ts';
import { jsonOf } from '../../base/outbound/outbound.ts';
import { type OpenRequest, receiptHeader } from './requests.ts';
import { assertSupported } from '../catalog/parameters.ts';
import { tokenizedTexts } from './tokenize.ts';
import { askWhole, type CallDeps, failUnusable } from './whole-answer.ts';

export type EmbeddingsCall = Pick<
  Call<undefined, undefined, EmbeddingsRequest>,
  'caller' | 'requestId' | 'gone' | 'body'
>;

/** @throws ServiceError if the request is refused or fails */
export async function embed(call: EmbeddingsCall, deps: CallDeps): Promise<Reply> {
  const { callable, inputs } = planEmbeddings(call.body, deps.catalog);
  const { model, pricing } = callable;
  const boundUcents = embeddingsUcents(embeddingsBound(inputs), pricing);
  return deps.requests.serve({ ...call, callable, boundUcents }, async (open) => {
    const made: Vectors = { vectors: [], tokens: 0, countedBy: 'upstream', upstream: '' };
    const used = (): Used => ({
      ucents: embeddingsUcents(made.tokens, pricing),
      usage: { prompt_tokens: made.tokens, completion_tokens: 0 },
      countedBy: made.countedBy,
      upstream: made.upstream,
    });
    const { dimensions } = call.body;
    try {
      await makeVectors(made, { callable, inputs, dimensions, orgId: call.caller.orgId, open }, deps);
    } catch (error) {
      const isLeft = open.signal.aborted && !(open.signal.reason instanceof ServiceError);
      // Otherwise one key could keep servers busy for nothing: each request may have dozens of batches.
      if (isLeft && made.vectors.length > 0) await open.close(usedOutcome('client_left', used()));
      throw error;
    }
    assertSameLength(made.vectors, dimensions);
    await open.close(usedOutcome('completed', used()));
    const body: EmbeddingsResponse = {
      object: 'list',
      data: made.vectors.map((embedding, index) => ({ object: 'embedding', embedding, index })),
      model: model.id,
      usage: { prompt_tokens: made.tokens, total_tokens: made.tokens },
    };
    return { status: 200, headers: receiptHeader(open), body };
  });
}

/** @throws ServiceError `model_not_found`, `unsupported_parameter`, `invalid_request` */
function planEmbeddings(body: EmbeddingsRequest, catalog: Catalog): { callable: Callable; inputs: string[] } {
  if (body.encoding_format === 'base64') {
    fail('unsupported_parameter', {
      detail:
        'encoding_format base64 is not supported in v1.1 of the inference API. Official clients send it unless told otherwise: pass encoding_format: "float".',
      errors: [{ field: 'encoding_format', rule: 'must be float' }],
    });
  }
  if (body.encoding_format !== 'float') failField('encoding_format', 'must be float');
  const callable = catalog.callable(body.model, 'embedding');
  assertSupported(body.dimensions === undefined ? [] : ['dimensions'], callable.model);
  const inputs = [body.input].flat();
  if (inputs.length > EMBEDDINGS_INPUTS_MAX) {
    fail('invalid_request', {
      detail: `input may have at most ${EMBEDDINGS_INPUTS_MAX} texts, and has ${inputs.length}. Send them in several requests.`,
      errors: [{ field: 'input', rule: `must have at most ${EMBEDDINGS_INPUTS_MAX} entries` }],
    });
  }
  return { callable, inputs };
}

interface VectorsRequest {
  callable: Callable;
  inputs: readonly string[];
  dimensions: number | undefined;
  orgId: string;
  open: OpenRequest;
}

type CountedBy = 'upstream' | 'tokenizer' | 'estimate';

/** What the batches until now have made. */
interface Vectors {
  vectors: number[][];
  tokens: number;
  /** The least exact way of counting among the batches. */
  countedBy: CountedBy;
  /** Address of the server of the last batch. */
  upstream: string;
}

/** Adds each batch to `all` as soon as it is there. */
async function makeVectors(all: Vectors, upstreamRequest: VectorsRequest, deps: CallDeps): Promise<void> {
  const { callable, inputs, orgId, open } = upstreamRequest;
  const { attempts, signal } = open;
  let startedMs = deps.clock.monotonicMs();
  // The smallest limit, so that any of the servers accepts a batch.
  const atOnce = Math.min(
    ...[...callable.upstreams, ...(callable.deployment === undefined ? [] : [callable.deployment])].map(
      (server) => server.max_inputs,
    ),
  );
  let bytesLeft = EMBEDDINGS_ANSWER_BYTES_MAX;
  for (let i = 0; i < inputs.length; i += atOnce) {
    const some = inputs.slice(i, i + atOnce);
    const body = (): object => bodyOf(some, upstreamRequest.dimensions);
    const asked = { callable, path: '/embeddings', body, attempts, orgId, startedMs, signal };
    const reading = { bytesMax: bytesLeft, read: (text: string) => readVectors(text, some.length) };
    const { answer: read, bytes, upstream, ...begun } = await askWhole(asked, reading, deps);
    startedMs = begun.startedMs;
    bytesLeft -= bytes;
    if (i === 0) refuseHopeless(bytes / some.length, inputs.length);
    all.vectors.push(...read.vectors);
    all.upstream = upstream.base_url;
    const tokens = read.tokens ?? (await countTexts(some, { all, upstream }, deps));
    // A server that adds to the texts, or that lies, changes nothing: more is neither held nor charged.
    all.tokens += Math.min(tokens, embeddingsBound(some));
  }
}

/** Vectors differ in length as text, so a request is refused early only if its answer would be far too large. */
const HOPELESS = 1.25;

/**
 * Refuses a request by the size of its first batch. An answer that is too large costs nothing, so all batches up to the limit would be made for
 * nothing.
 * @throws ServiceError `upstream_response_too_large`
 */
function refuseHopeless(bytesPerText: number, texts: number): void {
  if (bytesPerText * texts <= HOPELESS * EMBEDDINGS_ANSWER_BYTES_MAX) return;
  const most = Math.max(1, Math.floor(EMBEDDINGS_ANSWER_BYTES_MAX / bytesPerText));
  fail('upstream_response_too_large', `The vectors have more bytes than are read. Send at most ${most} texts at once.`);
}

/** @throws ServiceError `upstream_error` */
function assertSameLength(vectors: readonly number[][], dimensions: number | undefined): void {
  const lengths = new Set(vectors.map(({ length }) => length));
  if (lengths.size !== 1 || (dimensions !== undefined && !lengths.has(dimensions))) failUnusable();
}

async function countTexts(
  inputs: readonly string[],
  { all, upstream }: { all: Vectors; upstream: Upstream },
  deps: CallDeps,
): Promise<number> {
  // If the tokenizer has failed for one batch, the others would only wait for it too.
  const tokens = all.countedBy === 'estimate' ? undefined : await tokenizedTexts(upstream, inputs, deps);
  all.countedBy = tokens === undefined ? 'estimate' : 'tokenizer';
  return tokens ?? estimatedTokens(inputs);
}

function bodyOf(inputs: readonly string[], dimensions: number | undefined): object {
  return { input: inputs, encoding_format: 'float', ...(dimensions === undefined ? {} : { dimensions }) };
}

/** A vector is checked as a whole. A schema for each of its numbers, of which there may be millions, would take longer than the answer. */
const Vector = z.custom<number[]>(
  (value) => Array.isArray(value) && value.length > 0 && value.every((each) => Number.isFinite(each)),
);

const UpstreamEmbeddings = z.object({
  data: z.array(z.object({ embedding: Vector, index: z.int().min(0) })),
  usage: z.object({ prompt_tokens: z.int().min(0) }).nullish(),
});

/** The vectors in the order of the input; undefined if there is not exactly one for each of `count` texts. */
function readVectors(text: string, count: number): { vectors: number[][]; tokens: number | undefined } | undefined {
  const parsed = UpstreamEmbeddings.safeParse(jsonOf(text, count * EMBEDDING_JSON_VALUES_MAX));
  if (!parsed.success) return undefined;
  const { data, usage } = parsed.data;
  const sorted = data.toSorted((a, b) => a.index - b.index);
  if (data.length !== count || sorted.some(({ index }, i) => index !== i)) return undefined;
  return { vectors: sorted.map(({ embedding }) => embedding), tokens: usage?.prompt_tokens };
}
