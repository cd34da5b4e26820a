// Asking for an answer that is read whole, up to a bound of its bytes.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { ask, type AskDeps, brokenAnswer, type Question } from './ask.ts';
import { readText } from './read-answer.ts';
import type { Requests } from './requests.ts';

/** What every call of a model needs. */
export interface CallDeps extends AskDeps {
  clock: Clock;
  catalog: Catalog;
  requests: Requests;
}

/** @throws ServiceError those of `ask` and of a broken answer; `upstream_response_too_large` */
export async function askWhole(
  question: Omit<Question, 'answerMs' | 'idleMs'>,
  bytesMax: number,
  deps: AskDeps,
): Promise<{ text: string; upstream: string }> {
  const times: Pick<Question, 'answerMs' | 'idleMs'> = {
    answerMs: (upstream) => upstream.answer_ms,
    idleMs: (upstream) => upstream.idle_ms,
  };
  const { exchange, upstream, end } = await ask({ ...question, ...times }, deps);
  try {
    const text = await readText(exchange.body, bytesMax + 1);
    if (Buffer.byteLength(text) <= bytesMax) return { text, upstream: upstream.base_url };
  } catch (error) {
    throw brokenAnswer(error, question.signal);
  } finally {
    end();
  }
  return fail('upstream_response_too_large', `The answer has more bytes than are read. Ask for less at once.`);
}

/** @throws ServiceError `upstream_error` for an answer that is not what was asked for */
export function failUnusable(): never {
  return fail('upstream_error', 'The model gave no answer that can be used. Send the request again.');
}
