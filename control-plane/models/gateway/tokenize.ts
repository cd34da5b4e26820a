// Counts the tokens of a request: as the server has counted them, otherwise by the server's tokenizer, otherwise estimated from the text. It
// waits only a short time for the tokenizer.
import { z } from 'zod';
import type { ChatMessage, TokenUsage, ChatRequest } from '../../../shared/api/chat.ts';
import type { Clock } from '../../../shared/clock.ts';
import { TOKENIZER_ANSWER_BYTES_MAX, TOKENIZER_JSON_VALUES_PER_BYTE } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import type { Exchanges } from '../../base/outbound/exchange.ts';
import { OutboundError } from '../../base/outbound/policy.ts';
import type { Upstream } from '../catalog/models.ts';
import { jsonOf, readText } from '../../base/outbound/outbound.ts';
import { besideV1, headersFor } from '../catalog/model-servers.ts';
import type { PlannedChat } from './chat-plan.ts';
import type { Counts } from './counts.ts';
import { estimatedUsage } from './price.ts';
import type { Receipt } from './store.ts';

interface TokenizerDeps {
  exchanges: Exchanges;
  clock: Clock;
  log: Log;
}

/** Limit for all tokenizer requests of one answer, because a caller may be waiting for the end of its stream. */
const TOKENIZER_MS = 2_000;

export interface CountedChat {
  usage: TokenUsage;
  countedBy: Receipt['counted_by'];
}

/** `reported` is the server's own count. */
export async function countChat(
  upstream: Upstream,
  { messages, answer, reported }: Pick<ChatRequest, 'messages'> & { answer: string; reported: TokenUsage | undefined },
  deps: TokenizerDeps,
): Promise<CountedChat> {
  if (reported !== undefined) return { usage: reported, countedBy: 'upstream' };
  const usage = await tokenizedChat(upstream, { messages, answer }, deps);
  if (usage !== undefined) return { usage, countedBy: 'tokenizer' };
  return { usage: estimatedUsage(messages, answer), countedBy: 'estimate' };
}

/** Logs a server whose context is longer than the catalog states. `reported` is the server's own count. */
export function noteContext(
  reported: TokenUsage | undefined,
  { planned, upstream }: { planned: PlannedChat; upstream: Upstream },
  { counts, log }: { counts: Counts; log: Log },
): void {
  const tokens = (reported?.prompt_tokens ?? 0) + (reported?.completion_tokens ?? 0);
  const { contextLength, callable } = planned;
  if (tokens <= contextLength) return;
  counts.beyondContext(callable.model.id);
  log.warn(
    { model: callable.model.id, upstream: upstream.base_url, tokens, context_length: contextLength },
    'a model server has used more context than the catalogue gives its model: start it with that length',
  );
}

/** Undefined if the engine has no known tokenizer, or if the tokenizer does not answer correctly and in time. */
function tokenizedChat(
  upstream: Upstream,
  { messages, answer }: { messages: readonly ChatMessage[]; answer: string },
  deps: TokenizerDeps,
): Promise<TokenUsage | undefined> {
  const engine = CHAT_ENGINES[upstream.engine];
  if (engine === undefined) return Promise.resolve(undefined);
  return askTokenizer(upstream, deps, async (ask) => {
    const prompt = await engine.prompt(ask, messages);
    const completion = await engine.text(ask, answer);
    return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
  });
}

/** Tokens of a conversation before its answer; undefined as in `tokenizedChat`. */
export function tokenizedPrompt(
  upstream: Upstream,
  messages: readonly ChatMessage[],
  deps: TokenizerDeps,
): Promise<number | undefined> {
  const engine = CHAT_ENGINES[upstream.engine];
  if (engine === undefined) return Promise.resolve(undefined);
  return askTokenizer(upstream, deps, (ask) => engine.prompt(ask, messages));
}

/** Tokens of embedded texts, all together; undefined as in `tokenizedChat`. */
export function tokenizedTexts(
  upstream: Upstream,
  inputs: readonly string[],
  deps: TokenizerDeps,
): Promise<number | undefined> {
  if (upstream.engine !== 'tei') return Promise.resolve(undefined);
  return askTokenizer(upstream, deps, async (ask) => {
    const texts = await ask('/tokenize', { inputs }, z.array(z.array(z.unknown())).length(inputs.length));
    return texts.reduce((sum, tokens) => sum + tokens.length, 0);
  });
}

type Ask = <T>(path: string, body: object, answer: z.ZodType<T>) => Promise<T>;

interface ChatEngine {
  /** Includes the tokens that the chat template adds. */
  prompt(ask: Ask, messages: readonly ChatMessage[]): Promise<number>;
  text(ask: Ask, text: string): Promise<number>;
}

const VllmCount = z.object({ count: z.int().min(0) });
const LlamaPrompt = z.object({ prompt: z.string() });
const LlamaTokens = z.object({ tokens: z.array(z.unknown()) });

const CHAT_ENGINES: Partial<Record<Upstream['engine'], ChatEngine>> = {
  vllm: {
    prompt: async (ask, messages) => (await ask('/tokenize', { messages }, VllmCount)).count,
    text: async (ask, text) => (await ask('/tokenize', { prompt: text, add_special_tokens: false }, VllmCount)).count,
  },
  llama_cpp: {
    prompt: async (ask, messages) => {
      const { prompt } = await ask('/apply-template', { messages }, LlamaPrompt);
      return (await ask('/tokenize', { content: prompt, add_special: true, parse_special: true }, LlamaTokens)).tokens
        .length;
    },
    text: async (ask, text) =>
      (await ask('/tokenize', { content: text, add_special: false }, LlamaTokens)).tokens.length,
  },
};

/** The answer has no token count. */
class NoCount extends Error {}

async function askTokenizer<T>(
  upstream: Upstream,
  { exchanges, clock, log }: TokenizerDeps,
  count: (ask: Ask) => Promise<T>,
): Promise<T | undefined> {
  const spent = new AbortController();
  const cancel = clock.after(TOKENIZER_MS, () => spent.abort());
  const ask: Ask = async (path, body, answer) => {
    const sent = JSON.stringify({ ...body, model: upstream.model });
    const exchange = await exchanges.open({
      method: 'POST',
      url: besideV1(upstream, path),
      headers: headersFor(upstream),
      dial: upstream.replica?.dial,
      body: sent,
      connectMs: TOKENIZER_MS,
      statusMs: TOKENIZER_MS,
      idleMs: TOKENIZER_MS,
      // The signal is the limit of all requests together.
      totalMs: undefined,
      signal: spent.signal,
    });
    const text = await readText(exchange.body, TOKENIZER_ANSWER_BYTES_MAX);
    const read = answer.safeParse(jsonOf(text, TOKENIZER_JSON_VALUES_PER_BYTE * Buffer.byteLength(sent)));
    if (exchange.status !== 200 || !read.success) throw new NoCount(`${path} answers ${exchange.status} with no count`);
    return read.data;
  };
  try {
    return await count(ask);
  } catch (error) {
    if (!(error instanceof OutboundError) && !(error instanceof NoCount)) throw error;
    log.warn(
      { upstream: upstream.base_url, reason: error.message },
      'a tokenizer does not count; tokens are estimated',
    );
    return undefined;
  } finally {
    cancel();
  }
}
