// Requests an answer and reads it whole, up to a size limit. Some servers are asked for a stream, whose pieces are gathered: a server that writes
// nothing before the end does not notice that its caller has left.
import type { Clock } from '../../../shared/clock.ts';
import { fail, ServiceError } from '../../../shared/errors.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { Upstream } from '../catalog/models.ts';
import { type Answering, ask, type AskDeps, brokenAnswer, type UpstreamRequest } from './ask.ts';
import { readText } from '../../base/outbound/outbound.ts';
import type { Counts } from './counts.ts';
import type { Requests } from './requests.ts';
import { CHAT_ANSWER_BYTES_MAX } from '../../../shared/limits.ts';
import { type Completion, DONE, BadEvents, eventData } from './chat-wire.ts';
import { openChunkReader } from './chunk-reader.ts';

/** Dependencies of every call to a model. */
export interface CallDeps extends AskDeps {
  clock: Clock;
  catalog: Catalog;
  requests: Requests;
  counts: Counts;
}

/** How an answer is read. */
interface Reading<T> {
  bytesMax: number;
  /** Undefined if the text is not the expected answer. */
  read(text: string): T | undefined;
}

export interface WholeAnswer<T> {
  answer: T;
  bytes: number;
  upstream: Upstream;
  /** When the time limits of the request began, as in `Answering`. */
  startedMs: number;
}

/** @throws ServiceError those of `ask` and of `readWhole` */
export async function askWhole<T>(
  upstreamRequest: WholeRequest,
  reading: Reading<T>,
  deps: AskDeps,
): Promise<WholeAnswer<T>> {
  const { signal, cancel = signal } = upstreamRequest;
  return readWhole(await askForWhole(upstreamRequest, deps), reading, cancel);
}

export type WholeRequest = Omit<UpstreamRequest, 'answerMs' | 'idleMs'>;

/** @throws ServiceError those of `ask` */
export function askForWhole(upstreamRequest: WholeRequest, deps: AskDeps): Promise<Answering> {
  const times: Pick<UpstreamRequest, 'answerMs' | 'idleMs'> = {
    answerMs: (upstream) => upstream.answer_ms,
    idleMs: (upstream) => upstream.idle_ms,
  };
  return ask({ ...upstreamRequest, ...times }, deps);
}

/** @throws ServiceError for a broken answer; `upstream_response_too_large`; `upstream_error` for an unusable answer */
export async function readWhole<T>(
  { exchange, upstream, startedMs, answered, failed, end }: Answering,
  { bytesMax, read }: Reading<T>,
  signal: AbortSignal,
): Promise<WholeAnswer<T>> {
  try {
    const text = await readText(exchange.body, bytesMax + 1);
    const bytes = Buffer.byteLength(text);
    if (bytes > bytesMax)
      fail('upstream_response_too_large', 'The answer has more bytes than are read. Ask for less at once.');
    const answer = read(text) ?? failUnusable();
    answered();
    return { answer, bytes, upstream, startedMs };
  } catch (error) {
    const broken = error instanceof ServiceError ? error : brokenAnswer(error, signal);
    if (broken.code === 'upstream_response_too_large') answered();
    else failed();
    throw broken;
  } finally {
    end();
  }
}

/** @throws ServiceError `upstream_error` for an unusable answer */
export function failUnusable(): never {
  return fail('upstream_error', 'The model gave no answer that can be used. Send the request again.');
}

/** The part of an answer that was there when the caller left. */
export type Said = Pick<Completion, 'content' | 'thought' | 'usage'>;

export type Gathered = { completion: Completion } | { left: Said };

/** @throws ServiceError as `askWhole`; also if the caller has left before the answer began, or if this process stops */
export async function gather(
  answering: Answering,
  { signal }: Pick<UpstreamRequest, 'signal'>,
  deps: Pick<CallDeps, 'clock'>,
): Promise<Gathered> {
  const pieces = eventData(answering.exchange.body);
  const said: Draft = { content: '', thought: '', usage: undefined, finishReason: undefined };
  try {
    const completion = await readDraft(pieces, said);
    answering.answered();
    void readRest(pieces, answering, deps);
    return { completion };
  } catch (error) {
    answering.end();
    const isLeft = signal.aborted && !(signal.reason instanceof ServiceError);
    // A model that thinks first has tokens before it has a text.
    const hasBegun = said.content + said.thought !== '' || (said.usage?.completion_tokens ?? 0) > 0;
    if (isLeft && hasBegun) return { left: said };
    if (!(error instanceof ServiceError) || error.code !== 'upstream_response_too_large') answering.failed();
    if (error instanceof BadEvents) return failUnusable();
    throw error instanceof ServiceError ? error : brokenAnswer(error, signal);
  }
}

interface Draft extends Said {
  finishReason: Completion['finishReason'] | undefined;
}

/** Reads until the server reports the end, or its stream ends. */
async function readDraft(pieces: AsyncGenerator<string[]>, draft: Draft): Promise<Completion> {
  const readChunk = openChunkReader();
  for (let piece = await pieces.next(); piece.done !== true; piece = await pieces.next()) {
    for (const data of piece.value) {
      if (data === DONE) return whole(draft);
      const chunk = readChunk(data) ?? failUnusable();
      draft.content += chunk.content;
      draft.thought += chunk.thought;
      draft.usage = chunk.usage ?? draft.usage;
      draft.finishReason = chunk.finishReason ?? draft.finishReason;
      if (draft.content.length + draft.thought.length > CHAT_ANSWER_BYTES_MAX)
        fail('upstream_response_too_large', 'The answer has more bytes than are read. Ask for less at once.');
    }
  }
  return whole(draft);
}

function whole({ finishReason, ...said }: Draft): Completion {
  return finishReason === undefined ? failUnusable() : { ...said, finishReason };
}

/** How long the end of a stream is waited for after [DONE]. */
const REST_MS_MAX = 2_000;

/** Reads a stream to its end, so that its connection can be used again, and ends the exchange. A server that keeps it open is not waited for. */
export async function readRest(
  pieces: AsyncGenerator<string[]>,
  answering: Pick<Answering, 'end'>,
  { clock }: Pick<CallDeps, 'clock'>,
): Promise<void> {
  const cancel = clock.after(REST_MS_MAX, () => answering.end());
  await pieces.next().catch(() => undefined);
  cancel();
  answering.end();
}
