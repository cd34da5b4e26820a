// Asks the server of a replica: whether it is well, and whether it gives a real answer. A port that is open is not a server that is ready.
import { z } from 'zod';
import type { Modality } from '../../../shared/api/model.ts';
import type { Rng } from '../../../shared/rng.ts';
import { messageOf } from '../../../shared/errors.ts';
import { EMBEDDING_JSON_VALUES_MAX, UPSTREAM_JSON_VALUES_MAX } from '../../../shared/limits.ts';
import type { Exchange, Exchanges } from '../../base/outbound/exchange.ts';
import { OutboundError } from '../../base/outbound/policy.ts';
import { jsonOf, readText } from '../../base/outbound/outbound.ts';
import type { Upstream } from '../catalog/models.ts';
import { newQuestion, type Question } from './questions.ts';
import { besideV1, headersFor, isGathered, streamMembers } from '../catalog/model-servers.ts';

/** Undefined if all is well, otherwise the reason in words. */
export type Complaint = string | undefined;

interface Asking {
  exchanges: Exchanges;
  signal: AbortSignal;
}

const HEALTH_MS = 5_000;
/** The first answer of a large model takes long. */
const ANSWER_MS = 60_000;
const ANSWER_BYTES_MAX = 16 * 1024 * 1024;
/** Engines with `GET /health`, which answers 503 while the model is loaded. */
const WITH_HEALTH: readonly Upstream['engine'][] = ['vllm', 'sglang', 'llama_cpp', 'tei'];

/** The health check of engines that have one, then a real answer: one token, one vector or one image. */
export async function whyNotReady(upstream: Upstream, modality: Modality, asking: Asking): Promise<Complaint> {
  const unwell = WITH_HEALTH.includes(upstream.engine) ? await whyUnwell(upstream, asking) : undefined;
  return unwell ?? whyNoAnswer(upstream, modality, asking);
}

/** If a server has no health check, any answer is a sign of life. */
export async function whyUnwell(upstream: Upstream, asking: Asking): Promise<Complaint> {
  return complaintOf(async () => {
    const exchange = await send(upstream, { path: besideV1(upstream, '/health'), ms: HEALTH_MS }, asking);
    exchange.end();
    const isFine = WITH_HEALTH.includes(upstream.engine) ? exchange.status === 200 : exchange.status < 500;
    return isFine ? undefined : `its server answers ${exchange.status} to GET /health`;
  });
}

/**
 * Asks a server that has failed callers for a real answer. The question of a chat looks like one of a customer, so a host cannot answer our questions
 * and fail those of customers.
 */
export async function whyNoRealAnswer(
  upstream: Upstream,
  modality: Modality,
  asking: Asking & { rng: Rng },
): Promise<Complaint> {
  if (modality !== 'chat') return whyNoAnswer(upstream, modality, asking);
  return complaintOf(async () => {
    const { status, texts } = await answerTo(upstream, newQuestion(asking.rng), asking);
    if (status !== 200) return `its server answers ${status} to questions like those of customers`;
    return texts.length === 0 ? 'its server gives no answer that can be used' : undefined;
  });
}

/** A chat completion of the prompt at temperature 0; undefined if there is no text. @throws OutboundError */
export async function completionOf(
  upstream: Upstream,
  question: Question,
  asking: Asking,
): Promise<string | undefined> {
  const { texts } = await answerTo(upstream, question, asking);
  return isGathered(upstream) ? texts.join('') || undefined : (texts[0] ?? undefined);
}

interface ChatAnswer {
  status: number;
  /** The texts of a whole answer or of its chunks. A model that is still thinking has said null. */
  texts: (string | null)[];
}

/** Asks in the form in which the gateway asks for a whole answer. */
async function answerTo(upstream: Upstream, { prompt, tokensMax }: Question, asking: Asking): Promise<ChatAnswer> {
  const isStream = isGathered(upstream);
  const body = {
    messages: [{ role: 'user', content: prompt }],
    max_tokens: tokensMax,
    temperature: 0,
    ...(isStream ? streamMembers(upstream) : {}),
  };
  const { status, text } = await post(upstream, { path: '/chat/completions', body }, asking);
  if (isStream) return { status, texts: streamedTexts(text) };
  const completion = Completion.safeParse(jsonOf(text, UPSTREAM_JSON_VALUES_MAX));
  return { status, texts: (completion.data?.choices ?? []).map(({ message }) => message.content ?? null) };
}

/** The texts of the chunks of a stream of server-sent events. */
function streamedTexts(events: string): (string | null)[] {
  return events.split(/\r?\n/).flatMap((line) => {
    const json = line.startsWith('data:') ? jsonOf(line.slice(5), UPSTREAM_JSON_VALUES_MAX) : undefined;
    return (Chunk.safeParse(json).data?.choices ?? []).map(({ delta }) => delta.content ?? null);
  });
}

const Completion = z.object({
  choices: z.array(z.object({ message: z.object({ content: z.string().nullish() }) })).min(1),
});
const Chunk = z.object({ choices: z.array(z.object({ delta: z.object({ content: z.string().nullish() }) })) });
const Embedding = z.object({ data: z.array(z.object({ embedding: z.array(z.number()).min(1) })).length(1) });
const Image = z.object({ data: z.array(z.object({ b64_json: z.string().min(1) })).length(1) });

interface Probe {
  path: string;
  body: object;
  answer: z.ZodType;
  /** The name of the expected answer, for the complaint. */
  named: string;
}

const PROBES: Record<Exclude<Modality, 'video'>, Probe> = {
  chat: {
    path: '/chat/completions',
    body: { messages: [{ role: 'user', content: 'ping' }], max_tokens: 1, temperature: 0 },
    answer: Completion,
    named: 'a chat completion',
  },
  embedding: { path: '/embeddings', body: { input: ['ping'] }, answer: Embedding, named: 'an embedding' },
  image: {
    path: '/images/generations',
    body: { prompt: 'a dot', n: 1, response_format: 'b64_json' },
    answer: Image,
    named: 'an image',
  },
};

function whyNoAnswer(upstream: Upstream, modality: Modality, asking: Asking): Promise<Complaint> {
  if (modality === 'video') throw new Error('videos have no replicas');
  const { path, body, answer, named } = PROBES[modality];
  return complaintOf(async () => {
    const { status, text } = await post(upstream, { path, body }, asking);
    if (status !== 200) return `its server answers ${status} to POST /v1${path}`;
    const json = jsonOf(text, EMBEDDING_JSON_VALUES_MAX);
    return answer.safeParse(json).success ? undefined : `its server does not answer with ${named}`;
  });
}

async function complaintOf(ask: () => Promise<Complaint>): Promise<Complaint> {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof OutboundError)) throw error;
    return `its server does not answer: ${messageOf(error)}`;
  }
}

async function post(
  upstream: Upstream,
  { path, body }: { path: string; body: object },
  asking: Asking,
): Promise<{ status: number; text: string }> {
  const sent = JSON.stringify({ ...body, model: upstream.model });
  const exchange = await send(upstream, { path: `${upstream.base_url}${path}`, body: sent, ms: ANSWER_MS }, asking);
  return { status: exchange.status, text: await readText(exchange.body, ANSWER_BYTES_MAX) };
}

function send(
  upstream: Upstream,
  { path, body, ms }: { path: string; body?: string; ms: number },
  { exchanges, signal }: Asking,
): Promise<Exchange> {
  return exchanges.open({
    method: body === undefined ? 'GET' : 'POST',
    url: path,
    headers: headersFor(upstream),
    body: body ?? '',
    connectMs: upstream.connect_ms,
    statusMs: ms,
    idleMs: ms,
    totalMs: upstream.connect_ms + ms,
    signal,
    dial: upstream.replica?.dial,
  });
}
