// Chat completions as llama.cpp's server writes them: stop strings, counts and timings, whole or as events.
import type { Engine, Generation, Sampling } from './llama-server-engine.ts';

/** A request as it was sent; other members are ignored, as they are there. */
export interface ChatBody {
  messages?: { role: string; content: string }[];
  stream?: boolean;
  stream_options?: { include_usage?: boolean };
  timings_per_token?: boolean;
  max_tokens?: number;
  stop?: string | string[];
  temperature?: number;
  top_p?: number;
  seed?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
}

export interface Chat {
  body: ChatBody;
  generation: Generation;
  /** The server's name of its model. */
  model: string;
  /** If it is false, neither usage nor timings are written. llama.cpp's server always counts; others do not. */
  counts: boolean;
  id: string;
}

type FinishReason = 'stop' | 'length';

/** The part of the answer that is sure not to belong to a stop string. */
interface Step {
  text: string;
  produced: number;
  finishReason: FinishReason | undefined;
}

export function samplingOf(body: ChatBody): Sampling {
  return {
    temperature: body.temperature ?? 0.8,
    topP: body.top_p ?? 0.95,
    seed: body.seed,
    maxTokens: body.max_tokens ?? -1,
    presencePenalty: body.presence_penalty ?? 0,
    frequencyPenalty: body.frequency_penalty ?? 0,
  };
}

/** The answer as one object, after its last token. */
export async function wholeChat(chat: Chat): Promise<object> {
  let text = '';
  let last: Step = { text, produced: 0, finishReason: undefined };
  for await (last of stepsOf(chat)) text += last.text;
  return {
    choices: [{ finish_reason: last.finishReason, index: 0, message: { role: 'assistant', content: text } }],
    ...factsOf(chat, 'chat.completion'),
    ...(chat.counts ? { usage: usageOf(chat, last), timings: timingsOf(chat, last) } : {}),
  };
}

/** The data of the events, token by token, without the last `[DONE]`. */
export async function* chatEvents(chat: Chat): AsyncGenerator<object[]> {
  const { body, counts } = chat;
  const facts = factsOf(chat, 'chat.completion.chunk');
  const chunk = (delta: object, reason: FinishReason | null = null): object => ({
    choices: [{ finish_reason: reason, index: 0, delta }],
    ...facts,
  });
  for await (const step of stepsOf(chat)) {
    const events: object[] = [];
    if (step.produced === 1) events.push(chunk({ role: 'assistant', content: null }));
    if (step.text !== '') events.push(chunk({ content: step.text }));
    if (body.timings_per_token === true && counts) time(events, timingsOf(chat, step));
    if (step.finishReason !== undefined) {
      const last = [chunk({}, step.finishReason)];
      const wantsUsage = body.stream_options?.include_usage === true && counts;
      if (wantsUsage) last.push({ choices: [], ...facts, usage: usageOf(chat, step) });
      if (counts) time(last, timingsOf(chat, step));
      events.push(...last);
    }
    yield events;
  }
}

/** One step for each token. Text that may be the beginning of a stop string is kept back until that is decided. */
async function* stepsOf({ body, generation }: Chat): AsyncGenerator<Step> {
  const stops = [body.stop ?? []].flat().filter((stop) => stop !== '');
  let produced = 0;
  let kept = '';
  for await (const token of generation.tokens) {
    produced += 1;
    kept += token.text;
    const [stopAt] = stops
      .map((stop) => kept.indexOf(stop))
      .filter((at) => at >= 0)
      .toSorted((a, b) => a - b);
    if (stopAt !== undefined) {
      yield { text: kept.slice(0, stopAt), produced, finishReason: 'stop' };
      return;
    }
    const sure = token.isLast ? kept.length : sureLength(kept, stops);
    const reason = token.isEnd ? 'stop' : 'length';
    yield { text: kept.slice(0, sure), produced, finishReason: token.isLast ? reason : undefined };
    kept = kept.slice(sure);
  }
}

/** The characters of the text that no stop string can begin in. */
function sureLength(text: string, stops: readonly string[]): number {
  for (let at = 0; at < text.length; at += 1) {
    if (stops.some((stop) => stop.startsWith(text.slice(at)))) return at;
  }
  return text.length;
}

function factsOf({ id, model }: Chat, object: string): object {
  return { created: Math.floor(Date.now() / 1000), model, system_fingerprint: 'b1-de3ff81', object, id };
}

function usageOf({ generation: { promptTokens, cachedTokens } }: Chat, { produced }: Step): object {
  return {
    completion_tokens: produced,
    prompt_tokens: promptTokens,
    total_tokens: produced + promptTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
}

function timingsOf({ generation: { promptTokens, cachedTokens } }: Chat, { produced }: Step): object {
  return { cache_n: cachedTokens, prompt_n: promptTokens - cachedTokens, predicted_n: produced };
}

/** The last of some events carries the timings of them all. */
function time(events: object[], timings: object): void {
  const last = events.pop();
  if (last !== undefined) events.push({ ...last, timings });
}

/** The counters in the format of Prometheus. */
export function metricsOf(engine: Engine): string {
  const processing = engine.slots().filter(({ isProcessing }) => isProcessing).length;
  const figures: [string, string, number][] = [
    ['counter', 'prompt_tokens_total', engine.counts.promptTokens],
    ['counter', 'tokens_predicted_total', engine.counts.predictedTokens],
    ['gauge', 'requests_processing', processing],
    ['gauge', 'requests_deferred', engine.waiting()],
  ];
  return figures.map(([type, name, value]) => `# TYPE llamacpp:${name} ${type}\nllamacpp:${name} ${value}\n`).join('');
}
