// The program of llama-server.ts: llama.cpp behind the HTTP API of its own server. It prints its address, and ends with its standard input.
//
// The shapes, statuses and orders are those of llama.cpp v0.5.0: everything is 503 while the model loads; the first event of a stream comes
// with the first token; a stream stops when its caller leaves, but a whole answer is computed to its end; errors name a type and a code.
// It has no tools, log probabilities, grammars or images.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type ChatBody, chatEvents, metricsOf, samplingOf, wholeChat } from './llama-server-chat.ts';
import { type Engine, type EngineOptions, openEngine } from './llama-server-engine.ts';

export interface ProgramOptions extends EngineOptions {
  /** The name that answers give the model. */
  model: string;
  /** Whether answers have usage and timings. */
  counts: boolean;
  /** 0 for any that is free. */
  port: number;
  /** Ends with its standard input, so that it never outlives the process that started it. */
  endsWithInput: boolean;
  /** Loads the model only after a line on the standard input. */
  loadsWhenTold: boolean;
}

/** An error as the server names it. */
class Refusal extends Error {
  readonly status: number;
  readonly type: string;
  readonly more: object;

  constructor(status: number, type: string, message: string, more: object = {}) {
    super(message);
    this.status = status;
    this.type = type;
    this.more = more;
  }
}

type Body = ChatBody & { input?: string | string[]; content?: string; add_special?: boolean; parse_special?: boolean };
/** Sends the answer itself, or returns what is to be sent. */
type Handler = (engine: Engine, body: Body, response: ServerResponse) => Promise<object | string | undefined>;

const options = JSON.parse(process.argv[2] ?? '{}') as ProgramOptions;
const ROUTES: Record<string, Handler> = {
  'GET /health': async () => ({ status: 'ok' }),
  'GET /metrics': async (engine) => metricsOf(engine),
  'GET /slots': async (engine) =>
    engine.slots().map(({ id, isProcessing }) => ({ id, n_ctx: engine.contextLength, is_processing: isProcessing })),
  'POST /tokenize': async (engine, { content = '', add_special = false, parse_special = true }) => ({
    tokens: engine.tokenize(content, { addSpecial: add_special, parseSpecial: parse_special }),
  }),
  'POST /apply-template': async (engine, body) => ({ prompt: promptOf(engine, body) }),
  'POST /v1/chat/completions': completeChat,
  'POST /v1/embeddings': embed,
};
/** Undefined while the model loads. */
let loaded: Engine | undefined;
let requests = 0;

const server = createServer((request, response) => {
  void answer(request, response).catch((error: unknown) => {
    const refusal = error instanceof Refusal ? error : new Refusal(500, 'server_error', String(error));
    if (response.headersSent) return response.destroy();
    const { status, type, message, more } = refusal;
    return send(response, status, { error: { code: status, message, type, ...more } });
  });
});
// This is how long llama.cpp's HTTP library keeps connections.
server.keepAliveTimeout = 5_000;
server.maxRequestsPerSocket = 100;
server.listen(options.port, '127.0.0.1');
await once(server, 'listening');
if (options.endsWithInput) process.stdin.once('end', () => process.exit(0)).resume();
process.stdout.write(`listening on 127.0.0.1:${(server.address() as AddressInfo).port}\n`);
if (options.loadsWhenTold) await once(process.stdin, 'data');
loaded = await openEngine(options);
process.stdout.write('the model is loaded\n');

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (loaded === undefined) throw new Refusal(503, 'unavailable_error', 'Loading model');
  const handler = ROUTES[`${request.method} ${request.url}`];
  if (handler === undefined) throw new Refusal(404, 'not_found_error', 'File Not Found');
  const body = request.method === 'POST' ? await bodyOf(request) : {};
  const answered = await handler(loaded, body, response);
  if (answered !== undefined) send(response, 200, answered);
}

/** If the conversation ends with an answer, that answer is continued. */
function promptOf({ applyTemplate }: Engine, { messages }: ChatBody): string {
  if (!Array.isArray(messages)) throw new Refusal(400, 'invalid_request_error', "'messages' is required");
  const last = messages.at(-1);
  const begun = last?.role === 'assistant' ? last.content : '';
  try {
    return `${applyTemplate(begun === '' ? messages : messages.slice(0, -1))}${begun}`;
  } catch (error) {
    throw new Refusal(400, 'invalid_request_error', String(error));
  }
}

async function completeChat(engine: Engine, body: Body, response: ServerResponse): Promise<object | undefined> {
  const { contextLength } = engine;
  requests += 1;
  const id = `chatcmpl-${process.pid}-${requests}`;
  const prompt = engine.tokenize(promptOf(engine, body), { addSpecial: true, parseSpecial: true });
  if (prompt.length >= contextLength) {
    const message = `request (${prompt.length} tokens) exceeds the available context size (${contextLength} tokens), try increasing it`;
    const counts = { n_prompt_tokens: prompt.length, n_ctx: contextLength };
    throw new Refusal(400, 'exceed_context_size_error', message, counts);
  }
  const isStream = body.stream === true;
  const isLeft = (): boolean => isStream && response.destroyed;
  const chat = { body, generation: await engine.generate(prompt, samplingOf(body), isLeft), ...options, id };
  return isStream ? streamed(response, chatEvents(chat)) : wholeChat(chat);
}

/** Ends the generator, which frees its slot, as soon as the caller has left. */
async function streamed(response: ServerResponse, events: AsyncGenerator<object[]>): Promise<undefined> {
  for await (const some of events) {
    if (response.destroyed) return;
    if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(some.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(''));
  }
  response.end('data: [DONE]\n\n');
}

async function embed(engine: Engine, { input }: Body): Promise<object> {
  const { contextLength } = engine;
  if (input === undefined) throw new Refusal(400, 'invalid_request_error', '"input" or "content" must be provided');
  const texts = [input].flat().map((text) => engine.tokenize(text, { addSpecial: true, parseSpecial: true }));
  const tooLarge = texts.find(({ length }) => length >= contextLength);
  if (tooLarge !== undefined) {
    const size = `increase the physical batch size (current batch size: ${contextLength})`;
    throw new Refusal(500, 'server_error', `input (${tooLarge.length} tokens) is too large to process. ${size}`);
  }
  const data: object[] = [];
  for (const [index, text] of texts.entries()) {
    data.push({ embedding: await engine.embed(text), index, object: 'embedding' });
  }
  const tokens = texts.reduce((sum, { length }) => sum + length, 0);
  return { model: options.model, object: 'list', usage: { prompt_tokens: tokens, total_tokens: tokens }, data };
}

async function bodyOf(request: IncomingMessage): Promise<Body> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  return JSON.parse(Buffer.concat(pieces).toString(), (_name, value: unknown) => {
    // Node takes a half of a surrogate pair for a text. The JSON library of llama.cpp does not.
    if (typeof value === 'string' && !value.isWellFormed()) throw new Error('parse error: invalid string: surrogate');
    return value;
  }) as Body;
}

function send(response: ServerResponse, status: number, body: object | string): void {
  const isText = typeof body === 'string';
  const type = isText ? 'text/plain; version=0.0.4' : 'application/json; charset=utf-8';
  response.writeHead(status, { 'content-type': type }).end(isText ? body : JSON.stringify(body));
}
