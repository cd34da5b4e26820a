// A tiny model of the llama architecture, about half a megabyte, whose answers are known before anybody asks.
//
// A `sentence` model says its text word by word and ends, whatever it is asked: attention and feed-forward layers add nothing, so the next
// token depends on the last one alone, and each word has one successor. An `endless` model begins anew after the last word. A `random` model
// has random weights: its answer depends on the prompt and on the seed, and it never ends by itself. It also makes embeddings.
//
// Each word of the text is one token, and so are the beginnings of each word. Therefore the tokenizer, which joins neighbours, finds the same
// tokens in an answer that the model has produced. Other text has one token for each byte.
import { bool, f32, ggufFile, type GgufValue, i32, list, type Tensor, text, u32 } from './gguf.ts';
import { seededRng } from '../../shared/rng.ts';

export interface TinyModel {
  kind: 'sentence' | 'endless' | 'random';
  /** Words that are all different. */
  text: string;
  /** Tokens that the model was trained for, as the file says. */
  contextLength: number;
}

/** 17 words: 18 tokens with the end. */
export const TEXT =
  'Hello there. This answer comes from a tiny model inside llama.cpp, and every word was known before.';

/** Tokens around a conversation of one message: the beginning, its role, its end, and the role of the answer. */
export const TEMPLATE_TOKENS = 4;

const ROLES = ['system', 'user', 'assistant'];
/** Like the templates of many models, it refuses a conversation in an order that the model was not trained for. */
const TEMPLATE =
  "{% if messages[0]['role'] == 'assistant' %}{{ raise_exception('the answer comes first') }}{% endif %}" +
  "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}" +
  '{% if add_generation_prompt %}<|assistant|>{% endif %}';

const WIDTH = 64;
const LAYERS = 2;
const HEADS = 4;
const KEY_HEADS = 2;
const HIDDEN = 128;
/** Weight of the right successor. It is so high that no other token has a chance, even at the highest temperature. */
const CERTAINTY = 6;
/** Weight of a token that is never said, from the first dimension, which is 1 after every token. */
const NEVER = -50;
const RANDOM_WEIGHT = 0.4;

const TOKEN = { normal: 1, unknown: 2, control: 3, byte: 6 };
/** The spelling of a space within a token. */
const SPACE = '\u2581';

interface Vocabulary {
  tokens: { piece: string; type: number }[];
  /** The token of each word of the text. */
  words: number[];
  bos: number;
  eos: number;
  /** The last token of each prompt. */
  answers: number;
}

/** The bytes of a GGUF file. */
export function tinyModel(model: TinyModel): Buffer {
  const vocabulary = vocabularyOf(model.text);
  return ggufFile(metadataOf(model, vocabulary), tensorsOf(model, vocabulary));
}

function vocabularyOf(said: string): Vocabulary {
  const tokens: Vocabulary['tokens'] = [];
  const add = (piece: string, type: number): number => tokens.push({ piece, type }) - 1;
  add('<unk>', TOKEN.unknown);
  const bos = add('<s>', TOKEN.control);
  const eos = add('</s>', TOKEN.control);
  for (let byte = 0; byte < 256; byte += 1) {
    add(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`, TOKEN.byte);
  }
  const roles = ROLES.map((role) => add(`<|${role}|>`, TOKEN.control));
  add('<|end|>', TOKEN.control);
  const pieces = said.split(/(?= )/).map((word) => word.replace(' ', SPACE));
  if (new Set(pieces).size < pieces.length) throw new Error('a word with two successors: say each word once');
  const beginnings = new Set(
    pieces.flatMap((piece) => Array.from({ length: piece.length }, (_, i) => piece.slice(0, i + 1))),
  );
  for (const piece of beginnings) add(piece, TOKEN.normal);
  const words = pieces.map((word) => tokens.findIndex(({ piece }) => piece === word));
  return { tokens, words, bos, eos, answers: roles[ROLES.indexOf('assistant')] ?? 0 };
}

function metadataOf({ contextLength }: TinyModel, { tokens, bos, eos }: Vocabulary): Record<string, GgufValue> {
  return {
    'general.architecture': text('llama'),
    'general.name': text('tiny'),
    'general.file_type': u32(0),
    'llama.context_length': u32(contextLength),
    'llama.embedding_length': u32(WIDTH),
    'llama.block_count': u32(LAYERS),
    'llama.feed_forward_length': u32(HIDDEN),
    'llama.attention.head_count': u32(HEADS),
    'llama.attention.head_count_kv': u32(KEY_HEADS),
    'llama.attention.layer_norm_rms_epsilon': f32(1e-5),
    'llama.rope.freq_base': f32(10_000),
    'llama.rope.dimension_count': u32(WIDTH / HEADS),
    'llama.vocab_size': u32(tokens.length),
    // The embedding of a text is the mean of those of its tokens.
    'llama.pooling_type': u32(1),
    'tokenizer.ggml.model': text('llama'),
    'tokenizer.ggml.tokens': list(tokens.map(({ piece }) => text(piece))),
    // The longest of several possible tokens wins.
    'tokenizer.ggml.scores': list(tokens.map(({ piece, type }) => f32(type === TOKEN.normal ? piece.length : 0))),
    'tokenizer.ggml.token_type': list(tokens.map(({ type }) => i32(type))),
    'tokenizer.ggml.bos_token_id': u32(bos),
    'tokenizer.ggml.eos_token_id': u32(eos),
    'tokenizer.ggml.unknown_token_id': u32(0),
    'tokenizer.ggml.add_bos_token': bool(true),
    'tokenizer.ggml.add_eos_token': bool(false),
    'tokenizer.ggml.add_space_prefix': bool(false),
    'tokenizer.chat_template': text(TEMPLATE),
  };
}

function tensorsOf(model: TinyModel, vocabulary: Vocabulary): Tensor[] {
  const rng = seededRng(7);
  const random = (scale: number): number => (rng.float() - 0.5) * scale;
  const matrix = (name: string, shape: [number, number], value: (row: number, column: number) => number): Tensor => {
    const [columns, rows] = shape;
    const values = Float32Array.from({ length: columns * rows }, (_, i) => value(Math.floor(i / columns), i % columns));
    return { name, shape, values };
  };
  const ones = (name: string): Tensor => ({ name, shape: [WIDTH], values: new Float32Array(WIDTH).fill(1) });
  const inner = (): number => random(RANDOM_WEIGHT);
  /** What a layer adds; never to the first dimension. */
  const added = (row: number): number => (model.kind === 'random' && row > 0 ? random(RANDOM_WEIGHT) : 0);
  const count = vocabulary.tokens.length;
  const embedding = matrix('token_embd.weight', [WIDTH, count], (_, column) => (column === 0 ? 1 : random(1)));
  const keys = (WIDTH / HEADS) * KEY_HEADS;
  const layer = (i: number): Tensor[] => [
    ones(`blk.${i}.attn_norm.weight`),
    matrix(`blk.${i}.attn_q.weight`, [WIDTH, WIDTH], inner),
    matrix(`blk.${i}.attn_k.weight`, [WIDTH, keys], inner),
    matrix(`blk.${i}.attn_v.weight`, [WIDTH, keys], inner),
    matrix(`blk.${i}.attn_output.weight`, [WIDTH, WIDTH], added),
    ones(`blk.${i}.ffn_norm.weight`),
    matrix(`blk.${i}.ffn_gate.weight`, [WIDTH, HIDDEN], inner),
    matrix(`blk.${i}.ffn_up.weight`, [WIDTH, HIDDEN], inner),
    matrix(`blk.${i}.ffn_down.weight`, [HIDDEN, WIDTH], added),
  ];
  return [
    embedding,
    ones('output_norm.weight'),
    { ...embedding, name: 'output.weight', values: outputOf(model, vocabulary, embedding.values, random) },
    ...Array.from({ length: LAYERS }, (_, i) => layer(i)).flat(),
  ];
}

/** Turns a state into the likelihood of each next token. */
function outputOf(
  { kind }: TinyModel,
  { tokens, words, eos, answers }: Vocabulary,
  embedding: Float32Array,
  random: (scale: number) => number,
): Float32Array {
  const output = new Float32Array(tokens.length * WIDTH);
  for (let token = 0; token < tokens.length; token += 1) output[token * WIDTH] = NEVER;
  if (kind === 'random') {
    for (const token of words) {
      for (let i = 0; i < WIDTH; i += 1) output[token * WIDTH + i] = i === 0 ? 0 : random(1);
    }
    return output;
  }
  const end = kind === 'endless' ? (words[0] ?? 0) : eos;
  const steps = [answers, ...words].map((token, i) => [token, words[i] ?? end] as const);
  for (const token of [...words, eos]) output[token * WIDTH] = 0;
  for (const [token, successor] of steps) {
    for (let i = 1; i < WIDTH; i += 1) {
      const at = successor * WIDTH + i;
      output[at] = (output[at] ?? 0) + CERTAINTY * (embedding[token * WIDTH + i] ?? 0);
    }
  }
  return output;
}
