// Whole answers that are asked for as a stream: a server that writes nothing before the end does not notice that its caller has left.
import { fail, ServiceError } from '../../../shared/errors.ts';
import { CHAT_ANSWER_BYTES_MAX } from '../../../shared/limits.ts';
import type { Upstream } from '../catalog/models.ts';
import { type Answering, brokenAnswer, timedOut } from './ask.ts';
import { type Completion, DONE, readChunk } from './chat-wire.ts';
import { BadEvents, eventData } from './sse.ts';
import { type CallDeps, failUnusable } from './whole-answer.ts';

/** What was said of an answer that its caller has left. */
export type Said = Pick<Completion, 'content' | 'usage'>;

export type Gathered = { completion: Completion } | { left: Said };

/** llama.cpp goes on with a whole answer that nobody waits for, and stops a stream at once. */
export function isGathered({ engine }: Upstream): boolean {
  return engine === 'llama_cpp';
}

/** @throws ServiceError as `askWhole`; also where the caller has left before anything was said, and where it is we who end */
export async function gather(answering: Answering, signal: AbortSignal, deps: CallDeps): Promise<Gathered> {
  const late = new AbortController();
  const cancel = deps.clock.after(answering.upstream.answer_ms, () => {
    late.abort();
    answering.end();
  });
  const pieces = eventData(answering.exchange.body);
  const said: Draft = { content: '', usage: undefined, finishReason: undefined };
  try {
    const completion = await readDraft(pieces, said);
    answering.answered();
    // Read to its end, the connection serves the next request.
    void pieces
      .next()
      .catch(() => undefined)
      .finally(() => answering.end());
    return { completion };
  } catch (error) {
    answering.end();
    if (late.signal.aborted) {
      answering.failed();
      throw timedOut(error);
    }
    const isLeft = signal.aborted && !(signal.reason instanceof ServiceError);
    if (isLeft && said.content !== '') return { left: said };
    if (!(error instanceof ServiceError) || error.code !== 'upstream_response_too_large') answering.failed();
    if (error instanceof BadEvents) return failUnusable();
    throw error instanceof ServiceError ? error : brokenAnswer(error, signal);
  } finally {
    cancel();
  }
}

interface Draft extends Said {
  finishReason: Completion['finishReason'] | undefined;
}

/** Reads until the server says that it is done, or its stream ends. */
async function readDraft(pieces: AsyncGenerator<string[]>, draft: Draft): Promise<Completion> {
  for (let piece = await pieces.next(); piece.done !== true; piece = await pieces.next()) {
    for (const data of piece.value) {
      if (data === DONE) return whole(draft);
      const chunk = readChunk(data) ?? failUnusable();
      draft.content += chunk.content;
      draft.usage = chunk.usage ?? draft.usage;
      draft.finishReason = chunk.finishReason ?? draft.finishReason;
      if (draft.content.length > CHAT_ANSWER_BYTES_MAX)
        fail('upstream_response_too_large', 'The answer has more bytes than are read. Ask for less at once.');
    }
  }
  return whole(draft);
}

function whole({ content, usage, finishReason }: Draft): Completion {
  return finishReason === undefined ? failUnusable() : { content, usage, finishReason };
}
