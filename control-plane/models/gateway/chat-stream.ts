// Streams a chat completion: waits for the first chunk, passes on chunk by chunk, and settles the request however the stream ends.
import type { ChatCompletionChunk, ChatRequest, TokenUsage } from '../../../shared/api/chat.ts';
import { ServiceError } from '../../../shared/errors.ts';
import { CHAT_ANSWER_BYTES_MAX, COLD_START_SILENCE_MS, STREAM_MS_MAX } from '../../../shared/limits.ts';
import { EVENT_STREAM_HEADERS } from '../../base/http/event-stream.ts';
import { envelopeOf } from '../../base/http/refusals.ts';
import type { Reply } from '../../base/http/route.ts';
import { type Answering, ask, brokenAnswer } from './ask.ts';
import { chatAffinity, type ChatCall, completionFacts, roomFor } from './chat.ts';
import { assertFits, boundedUsage, type PlannedChat, planChat } from './chat-plan.ts';
import { streamMembers } from '../catalog/model-servers.ts';
import { DONE, upstreamBody, BadEvents, eventData } from './chat-wire.ts';
import { openChunkReader, type ReadChunk } from './chunk-reader.ts';
import { eventOf, type EventWriter, openEventWriter, PING } from './event-writer.ts';
import { failedOutcome, freeOutcome, type Used, usedOutcome } from './states.ts';
import { countChat, noteContext } from './tokenize.ts';
import { chatUcents } from './price.ts';
import { onAbort, type OpenRequest, receiptHeader } from './requests.ts';
import type { Ending } from './store.ts';
import { type CallDeps, readRest } from './whole-answer.ts';

/** @throws ServiceError if the request is refused or fails before the answer begins; an unknown model is reported in the stream */
export async function streamChat(call: ChatCall, deps: CallDeps): Promise<Reply> {
  const planned = planOrRefusal(call.body, deps);
  if (planned instanceof ServiceError) return refusedStream(planned, call, deps);
  return deps.requests.serve({ ...call, ...planned }, async (open) => {
    const cold = coldStart(deps);
    const beginning = beginAnswer(call, { planned, open, onWait: cold.onWait }, deps);
    const begun = planned.callable.deployment === undefined ? await beginning : await cold.unlessLong(beginning);
    const writer = openEventWriter(deps);
    if (begun === undefined) void writer.send(PING, open.signal);
    const passing =
      begun === undefined
        ? beginning.then((late) => passOn({ ...late, writer }, deps))
        : passOn({ ...begun, writer }, deps);
    void endIfFailed(passing, { call, open, writer }, deps);
    return { status: 200, headers: { ...EVENT_STREAM_HEADERS, ...receiptHeader(open) }, stream: writer.stream };
  });
}

/** An answer whose first piece is there. */
interface Begun {
  chat: Chat;
  first: string[];
  pieces: AsyncGenerator<string[]>;
}

async function beginAnswer(call: ChatCall, asking: Asking, deps: CallDeps): Promise<Begun> {
  const { planned, open } = asking;
  const answering = await askForStream(call, asking, deps);
  const nothing = { said: '', usage: undefined, finished: false, state: 'going' } as const;
  const chat: Chat = { call, planned, open, answering, readChunk: openChunkReader(), ...nothing };
  const pieces = eventData(answering.exchange.body);
  const first = await firstPiece(pieces, chat).catch((error: unknown) => {
    noteContext(chat.usage, { planned, upstream: answering.upstream }, deps);
    if (error instanceof ServiceError && error.code === 'context_length_exceeded') answering.answered();
    else answering.failed();
    answering.end();
    throw error;
  });
  // From here on, the limits are those of a stream: STREAM_MS_MAX, and the time between two pieces.
  answering.exchange.unlimited();
  answering.answered();
  return { chat, first, pieces };
}

interface ColdStart {
  onWait(): void;
  /**
   * Resolves with the value, or with undefined if the request has waited for a replica for COLD_START_SILENCE_MS. The caller then needs a sign of
   * life.
   */
  unlessLong<T>(value: Promise<T>): Promise<T | undefined>;
}

/** A failure within the first seconds of a cold start is answered with its own status. After these seconds, the stream begins with pings. */
function coldStart({ clock }: CallDeps): ColdStart {
  const long = Promise.withResolvers<undefined>();
  let cancel: (() => void) | undefined;
  return {
    onWait: () => {
      cancel ??= clock.after(COLD_START_SILENCE_MS, () => long.resolve(undefined));
    },
    unlessLong: (value) => Promise.race([value, long.promise]).finally(() => cancel?.()),
  };
}

/**
 * Waits for `passing`. If it rejects, closes the request and ends the stream with an error. It rejects if the answer fails before its late beginning,
 * or for a reason that nobody has foreseen. Never throws.
 */
async function endIfFailed(
  passing: Promise<void>,
  { call, open, writer }: { call: ChatCall; open: OpenRequest; writer: EventWriter },
  deps: CallDeps,
): Promise<void> {
  try {
    await passing;
  } catch (error) {
    if (!(error instanceof ServiceError)) deps.log.error({ receipt: open.id, err: error }, 'a stream failed');
    const { reason }: { reason: unknown } = open.signal;
    const refusal = [reason, error].find((each) => each instanceof ServiceError);
    const unnamed = new ServiceError('internal_error', { detail: 'The answer failed. It costs nothing.' });
    await open
      .close(failedOutcome(error, open.signal))
      .catch((err: unknown) => deps.log.error({ receipt: open.id, err }, 'a stream could not be settled'));
    writer.end(eventOf(envelopeOf(refusal ?? unnamed, call.requestId)) + eventOf(DONE));
  }
}

/** The state of an answer that is being streamed. */
interface Chat {
  call: ChatCall;
  planned: PlannedChat;
  open: OpenRequest;
  answering: Answering;
  readChunk: ReadChunk;
  /**
   * The text that the server has sent so far, with the thoughts of the model. It is empty as soon as the server counts, because only an uncounted
   * text is needed.
   */
  said: string;
  /** The server's last count. */
  usage: TokenUsage | undefined;
  /** True if the server has sent the finish reason. */
  finished: boolean;
  /** Whether the server's stream continues, has ended as it should, or broke off. */
  state: 'going' | 'whole' | 'broken';
}

interface Passing extends Begun {
  writer: EventWriter;
}

function planOrRefusal(body: ChatRequest, deps: CallDeps): PlannedChat | ServiceError {
  try {
    return planChat(body, deps.catalog);
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'model_not_found') return error;
    throw error;
  }
}

/** Sends a refusal as the final event before [DONE] (specification 4.8). */
function refusedStream(refusal: ServiceError, call: ChatCall, deps: CallDeps): Reply {
  const writer = openEventWriter(deps);
  writer.end(eventOf(envelopeOf(refusal, call.requestId)) + eventOf(DONE));
  return { status: 200, headers: EVENT_STREAM_HEADERS, stream: writer.stream };
}

interface Asking {
  planned: PlannedChat;
  open: OpenRequest;
  onWait(): void;
}

function askForStream(call: ChatCall, { planned, open, onWait }: Asking, deps: CallDeps): Promise<Answering> {
  return ask(
    {
      callable: planned.callable,
      path: '/chat/completions',
      body: async (upstream) => ({
        ...upstreamBody(call.body, planned, await roomFor(upstream, { body: call.body, planned }, deps)),
        ...streamMembers(upstream),
      }),
      attempts: open.attempts,
      orgId: call.caller.orgId,
      startedMs: deps.clock.monotonicMs(),
      answerMs: (upstream) => upstream.first_byte_ms,
      idleMs: (upstream) => upstream.idle_ms,
      affinity: chatAffinity(call, planned),
      signal: open.signal,
      onWait,
    },
    deps,
  );
}

/** Waits for the first piece. Before it, a failure is still answered with its own status. */
async function firstPiece(pieces: AsyncGenerator<string[]>, chat: Chat): Promise<string[]> {
  const { open, planned } = chat;
  try {
    const first = await pieces.next();
    const [data] = first.done === true ? [] : first.value;
    const chunk = data === undefined ? undefined : chat.readChunk(data);
    if (first.done !== true && chunk !== undefined) {
      chat.usage = chunk.usage;
      assertFits(chunk.usage?.prompt_tokens ?? 0, planned);
      return first.value;
    }
  } catch (error) {
    throw brokenStream(error, open.signal);
  }
  throw brokenOff();
}

/** Settles the request at its end. @throws only what nobody has foreseen; the server is left then */
async function passOn({ chat, first, pieces, writer }: Passing, deps: CallDeps): Promise<void> {
  let isTooLong = false;
  const stop = new AbortController();
  const { signal } = stop;
  const cancel = deps.clock.after(STREAM_MS_MAX, () => {
    isTooLong = true;
    stop.abort();
    chat.answering.end();
  });
  const leave = (): void => stop.abort();
  const forget = onAbort(chat.open.signal, leave);
  // The writer cuts off a caller that does not read.
  writer.stream.once('close', leave);
  const chunk = chunksOf(chat, deps);
  // The first event goes out together with the head of the answer and the first text.
  let events = chunk.event({ role: 'assistant', content: '', refusal: null });
  let failure: ServiceError | undefined;
  try {
    for (let piece: string[] | undefined = first; piece !== undefined && !signal.aborted;) {
      events += take(piece, chat, chunk);
      // The last events go out in one packet with the end of the stream. They do not wait if the tokens must still be counted.
      const isLast = chat.state !== 'going';
      if (!isLast || chat.usage === undefined) {
        await writer.send(events, signal);
        events = '';
      }
      if (isLast) break;
      const next: IteratorResult<string[]> = await pieces.next();
      piece = next.done === true ? undefined : next.value;
    }
    if (!chat.finished && !signal.aborted) failure = brokenOff();
  } catch (error) {
    // After the finish reason the answer is complete, however the connection ends.
    if (!chat.finished && !signal.aborted) failure = brokenStream(error, signal);
  } finally {
    cancel();
    forget();
    // Each stream closes at its end. To abort then would make an error with a stack for nobody.
    writer.stream.off('close', leave);
    if (failure !== undefined) chat.answering.failed();
    if (chat.state !== 'whole') chat.answering.end();
  }
  const { reason }: { reason: unknown } = chat.open.signal;
  if (!chat.finished && reason instanceof ServiceError) failure = reason;
  await finish({ chat, failure, isTooLong, writer, events }, deps);
  if (chat.state === 'whole') await readRest(pieces, chat.answering, deps);
}

interface Finish {
  chat: Chat;
  failure: ServiceError | undefined;
  isTooLong: boolean;
  writer: EventWriter;
  /** The events that were not sent yet. */
  events: string;
}

async function finish({ chat, failure, isTooLong, writer, events }: Finish, deps: CallDeps): Promise<void> {
  const { open, call, planned, answering } = chat;
  let last = '';
  try {
    if (failure !== undefined) {
      const ending = failure.code === 'unavailable' ? 'process_ended' : 'upstream_failed';
      await open.close(freeOutcome(ending, answering.upstream.base_url));
      last = eventOf(envelopeOf(failure, call.requestId));
    } else {
      const used = await usedOf(chat, deps);
      await open.close(usedOutcome(endingOf(chat, isTooLong), used));
      if (isTooLong && !chat.finished) last = eventOf(envelopeOf(cutOff(), call.requestId));
      else if (call.body.stream_options?.include_usage === true) {
        last = eventOf({ ...completionFacts(open, planned, deps), object: CHUNK, choices: [], usage: used.usage });
      }
    }
  } catch (error) {
    deps.log.error({ receipt: open.id, err: error }, 'a stream could not be settled');
    const unbilled = new ServiceError('internal_error', {
      detail: 'The answer could not be billed. It costs nothing.',
    });
    last = eventOf(envelopeOf(unbilled, call.requestId));
  }
  writer.end(events + last + eventOf(DONE));
}

/** The ending of a request that is charged (see the README of the room). */
function endingOf({ finished }: Chat, isTooLong: boolean): Ending {
  if (finished) return 'completed';
  return isTooLong ? 'too_long' : 'client_left';
}

async function usedOf(
  { call, planned, answering, said, usage, finished }: Chat,
  deps: CallDeps,
): Promise<Used & { usage: TokenUsage }> {
  const { upstream } = answering;
  noteContext(usage, { planned, upstream }, deps);
  const counted = await countChat(upstream, { messages: call.body.messages, answer: said, reported: usage }, deps);
  const countedBy = usage !== undefined && !finished ? 'running' : counted.countedBy;
  const bounded = boundedUsage(counted.usage, planned);
  const ucents = chatUcents(bounded, planned.callable.pricing);
  return { usage: bounded, countedBy, ucents, upstream: upstream.base_url };
}

const CHUNK = 'chat.completion.chunk';
type Delta = ChatCompletionChunk['choices'][number]['delta'];
type FinishReason = ChatCompletionChunk['choices'][number]['finish_reason'];

/** Makes the events of one stream. */
interface Chunks {
  event(delta: Delta, finishReason?: FinishReason): string;
  /** The event with some text. Its other fields were made into text once, before the first event. */
  text(content: string): string;
}

/** A placeholder in the event from which all others are made. The text replaces it. The ids around it cannot contain it. */
const TEXT = '<text>';

function chunksOf({ open, planned, call }: Chat, deps: CallDeps): Chunks {
  const facts = completionFacts(open, planned, deps);
  const usage = call.body.stream_options?.include_usage === true ? { usage: null } : {};
  const event = (delta: Delta, finishReason: FinishReason = null): string =>
    eventOf({
      id: facts.id,
      object: CHUNK,
      created: facts.created,
      model: facts.model,
      choices: [{ index: 0, delta, logprobs: null, finish_reason: finishReason }],
      ...usage,
    });
  const [before = '', after = ''] = event({ content: TEXT }).split(JSON.stringify(TEXT));
  return { event, text: (content) => before + JSON.stringify(content) + after };
}

/** Updates the state from a piece, and returns the events for the caller. */
function take(piece: readonly string[], chat: Chat, chunk: Chunks): string {
  let events = '';
  for (const data of piece) {
    const read = data === DONE ? undefined : chat.readChunk(data);
    if (read === undefined) {
      chat.state = data === DONE ? 'whole' : 'broken';
      break;
    }
    chat.usage = read.usage ?? chat.usage;
    if (chat.finished) continue;
    if (chat.usage !== undefined) chat.said = '';
    // The limit is far above the text of any answer, so the charge is the same without the rest.
    else if (chat.said.length < CHAT_ANSWER_BYTES_MAX) chat.said += read.thought + read.content;
    if (read.content !== '') events += chunk.text(read.content);
    if (read.finishReason !== undefined) {
      chat.finished = true;
      events += chunk.event({}, read.finishReason);
    }
  }
  return events;
}

function brokenStream(error: unknown, signal: AbortSignal): ServiceError {
  if (error instanceof ServiceError) return error;
  return error instanceof BadEvents ? brokenOff() : brokenAnswer(error, signal);
}

function brokenOff(): ServiceError {
  return new ServiceError('upstream_error', { detail: 'The model broke off its answer. Send the request again.' });
}

function cutOff(): ServiceError {
  return new ServiceError('upstream_timeout', {
    detail: `An answer is streamed for at most ${STREAM_MS_MAX / 60_000} minutes. Ask for less at once, and read as it comes.`,
  });
}
