// Requests an answer and reads it whole, up to a size limit.
import type { Clock } from '../../../shared/clock.ts';
import { fail, ServiceError } from '../../../shared/errors.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { Upstream } from '../catalog/models.ts';
import { type Answering, ask, type AskDeps, brokenAnswer, type UpstreamRequest } from './ask.ts';
import { readText } from '../../base/outbound/outbound.ts';
import type { Counts } from './counts.ts';
import type { Requests } from './requests.ts';

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
}

/** @throws ServiceError those of `ask` and of `readWhole` */
export async function askWhole<T>(
  upstreamRequest: WholeRequest,
  reading: Reading<T>,
  deps: AskDeps,
): Promise<WholeAnswer<T>> {
  return readWhole(await askForWhole(upstreamRequest, deps), reading, upstreamRequest.signal);
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
  { exchange, upstream, answered, failed, end }: Answering,
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
    return { answer, bytes, upstream };
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
