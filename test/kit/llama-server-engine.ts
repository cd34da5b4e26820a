// llama.cpp itself, from the prebuilt binaries of node-llama-cpp: a model file, its slots, and the tokens that they produce.
import { Template } from '@huggingface/jinja';
import { getLlama, type LlamaContextSequence, LlamaLogLevel, type LlamaModel, type Token } from 'node-llama-cpp';
import { setTimeout as sleep } from 'node:timers/promises';

export interface EngineOptions {
  modelFile: string;
  /** Tokens of prompt and answer in each slot. */
  contextLength: number;
  /** Requests that are computed at the same time. */
  slots: number;
  /** Makes embeddings instead of answers. */
  embeds: boolean;
  /** Time between two tokens of an answer. */
  tokenMs: number;
}

export interface Sampling {
  temperature: number;
  topP: number;
  seed: number | undefined;
  maxTokens: number;
  presencePenalty: number;
  frequencyPenalty: number;
}

/** One token of an answer. */
export interface Produced {
  text: string;
  /** The model has ended its answer, so there is no text. */
  isEnd: boolean;
  /** No token follows: the model has ended its answer, or the limit of the request or of the context is reached. */
  isLast: boolean;
}

/** A slot while it works for one request. */
export interface Generation {
  promptTokens: number;
  /** Tokens of the prompt that the slot has computed for an earlier request. */
  cachedTokens: number;
  /** Ends after the last token, or if it is left. */
  tokens: AsyncGenerator<Produced>;
}

export interface Engine {
  contextLength: number;
  /** Counters as `/metrics` shows them. */
  counts: { promptTokens: number; predictedTokens: number };
  slots(): { id: number; isProcessing: boolean }[];
  waiting(): number;
  /** The conversation as the model reads it. @throws Error of the model's template */
  applyTemplate(messages: object[]): string;
  tokenize(text: string, how: { addSpecial: boolean; parseSpecial: boolean }): Token[];
  /** Waits for a free slot, and never resolves if the caller leaves meanwhile. The slot is free again when the generator has ended. */
  generate(prompt: Token[], sampling: Sampling, isLeft: () => boolean): Promise<Generation>;
  /** A vector of length 1. */
  embed(tokens: Token[]): Promise<number[]>;
}

interface Slot {
  id: number;
  sequence: LlamaContextSequence;
  isProcessing: boolean;
}

/** Defaults of llama.cpp's server. */
const TOP_K = 40;
const MIN_P = 0.05;

/** @throws Error if there is no binary for this platform, or no such model */
export async function openEngine(options: EngineOptions): Promise<Engine> {
  const llama = await getLlama({ gpu: false, build: 'never', maxThreads: 1, logLevel: LlamaLogLevel.error });
  const model = await llama.loadModel({ modelPath: options.modelFile });
  return options.embeds ? openEmbeddings(model, options) : openChats(model, options);
}

async function openChats(model: LlamaModel, options: EngineOptions): Promise<Engine> {
  const context = await model.createContext({ contextSize: options.contextLength, sequences: options.slots });
  const slots = Array.from({ length: options.slots }, (_, id): Slot => {
    return { id, sequence: context.getSequence(), isProcessing: false };
  });
  let waiting: { isLeft(): boolean; resolve(slot: Slot): void }[] = [];
  const take = async (prompt: Token[], isLeft: () => boolean): Promise<Slot> => {
    const [slot] = slots
      .filter(({ isProcessing }) => !isProcessing)
      .toSorted((a, b) => commonPrefix(b.sequence, prompt) - commonPrefix(a.sequence, prompt));
    if (slot === undefined) return new Promise((resolve) => void waiting.push({ isLeft, resolve }));
    slot.isProcessing = true;
    return slot;
  };
  const free = (slot: Slot): void => {
    waiting = waiting.filter(({ isLeft }) => !isLeft());
    const next = waiting.shift();
    slot.isProcessing = next !== undefined;
    next?.resolve(slot);
  };
  const engine: Engine = {
    ...commonOf(model, options),
    slots: () => slots,
    waiting: () => waiting.length,
    generate: async (prompt, sampling, isLeft) => {
      const slot = await take(prompt, isLeft);
      // llama.cpp computes at least the last token again, because the first answer token depends on it.
      const cachedTokens = Math.min(commonPrefix(slot.sequence, prompt), prompt.length - 1);
      const end = slot.sequence.nextTokenIndex;
      if (end > cachedTokens) await slot.sequence.eraseContextTokenRanges([{ start: cachedTokens, end }]);
      const counts = engine.counts;
      counts.promptTokens += prompt.length - cachedTokens;
      const tokens = produce(model, { slot, prompt, cachedTokens, sampling, options, counts, free });
      return { promptTokens: prompt.length, cachedTokens, tokens };
    },
    embed: async () => Promise.reject(new Error('this server was started for chats')),
  };
  return engine;
}

async function openEmbeddings(model: LlamaModel, options: EngineOptions): Promise<Engine> {
  const context = await model.createEmbeddingContext({
    contextSize: options.contextLength,
    batchSize: options.contextLength,
  });
  return {
    ...commonOf(model, options),
    slots: () => [],
    waiting: () => 0,
    generate: async () => Promise.reject(new Error('this server was started for embeddings')),
    embed: async (tokens) => normalized((await context.getEmbeddingFor([...tokens])).vector),
  };
}

function commonOf(
  model: LlamaModel,
  { contextLength }: EngineOptions,
): Pick<Engine, 'contextLength' | 'counts' | 'applyTemplate' | 'tokenize'> {
  const template = new Template(model.fileInfo.metadata.tokenizer.chat_template ?? '');
  const { bos } = model.tokens;
  return {
    contextLength,
    counts: { promptTokens: 0, predictedTokens: 0 },
    applyTemplate: (messages) => template.render({ messages, add_generation_prompt: true }),
    tokenize: (text, { addSpecial, parseSpecial }) => [
      ...(addSpecial && bos !== null ? [bos] : []),
      ...model.tokenize(text, parseSpecial),
    ],
  };
}

interface Production {
  slot: Slot;
  prompt: Token[];
  cachedTokens: number;
  sampling: Sampling;
  options: EngineOptions;
  counts: Engine['counts'];
  free(slot: Slot): void;
}

async function* produce(model: LlamaModel, production: Production): AsyncGenerator<Produced> {
  const { slot, prompt, cachedTokens, sampling, options, counts, free } = production;
  const produced: Token[] = [];
  try {
    const answer = slot.sequence.evaluate(prompt.slice(cachedTokens), {
      temperature: sampling.temperature,
      topP: sampling.topP,
      topK: TOP_K,
      minP: MIN_P,
      ...(sampling.seed === undefined ? {} : { seed: sampling.seed }),
      repeatPenalty: {
        punishTokens: () => produced,
        penalty: 1,
        presencePenalty: sampling.presencePenalty,
        frequencyPenalty: sampling.frequencyPenalty,
      },
      yieldEogToken: true,
    });
    for await (const token of answer) {
      const isEnd = model.isEogToken(token);
      const text = isEnd ? '' : model.detokenize([token], false, produced);
      produced.push(token);
      counts.predictedTokens += 1;
      const isFull = prompt.length + produced.length >= options.contextLength;
      const isLast = isEnd || isFull || produced.length === sampling.maxTokens;
      yield { text, isEnd, isLast };
      if (isLast) return;
      if (options.tokenMs > 0) await sleep(options.tokenMs);
    }
  } finally {
    free(slot);
  }
}

function commonPrefix({ contextTokens }: LlamaContextSequence, prompt: readonly Token[]): number {
  const different = prompt.findIndex((token, i) => token !== contextTokens[i]);
  return different === -1 ? prompt.length : different;
}

function normalized(vector: readonly number[]): number[] {
  const length = Math.hypot(...vector);
  return vector.map((value) => value / length);
}
