// Interprets the answers of Docker's API: the status codes of refusals, the progress lines of a pull, and the frames of a container's log.
import type { PullNews, PullProgress } from './engine.ts';
import { type Duplex, pipeline, Readable } from 'node:stream';
import { parseJson } from '../../shared/json.ts';
import type { LogLine } from '../../shared/protocol/workload.ts';
import { VOLUME_TOO_LONG, VOLUMES_TOO_MANY } from './volumeless.ts';

export async function absentAsUndefined<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (statusOf(error) === 404) return undefined;
    throw error;
  }
}

/** Ignores statuses that mean that the request is fulfilled already: 304 not modified, 404 gone, 409 not running or there already. */
export async function ignoring(statuses: readonly number[], call: Promise<unknown>): Promise<void> {
  try {
    await call;
  } catch (error) {
    if (!statuses.includes(statusOf(error) ?? 0)) throw error;
  }
}

/** One progress line of the engine. */
export interface PullEvent {
  id?: string;
  status?: string;
  error?: string;
  progressDetail?: { current?: number; total?: number };
}

/** The engine has requested the layer, and the registry has not sent all of it. */
const ASKED = new Set(['Pulling fs layer', 'Downloading']);
/** The layer has arrived, or is not requested yet: the engine requests few layers at a time. */
const NOT_ASKED = new Set([
  'Waiting',
  'Verifying Checksum',
  'Download complete',
  'Extracting',
  'Pull complete',
  'Already exists',
]);
const WHOLE = new Set(['Download complete', 'Pull complete']);

/**
 * Adds up the downloads of all layers. A complete layer counts with its full size. A registry may lie about sizes, and the control plane refuses
 * a report with a number that is negative or too large, so such numbers do not count.
 */
export function countBytes(onNews: (news: PullNews) => void): (event: PullEvent) => void {
  const layers = new Map<string, PullProgress>();
  const asked = new Set<string>();
  return ({ id, status = '', progressDetail }) => {
    if (id === undefined || !(ASKED.has(status) || NOT_ASKED.has(status))) return;
    if (ASKED.has(status)) asked.add(id);
    else asked.delete(id);
    const before = layers.get(id) ?? { done_bytes: 0, total_bytes: 0 };
    if (status === 'Downloading') {
      const total = sizeOf(progressDetail?.total) ?? before.total_bytes;
      layers.set(id, { done_bytes: Math.min(sizeOf(progressDetail?.current) ?? 0, total), total_bytes: total });
    } else if (WHOLE.has(status)) {
      layers.set(id, { ...before, done_bytes: before.total_bytes });
    }
    const all = [...layers.values()];
    onNews({
      done_bytes: sumOf(all.map((layer) => layer.done_bytes)),
      total_bytes: sumOf(all.map((layer) => layer.total_bytes)),
      downloading: asked.size > 0,
    });
  };
}

function sizeOf(told: number | undefined): number | undefined {
  return Number.isSafeInteger(told) && Number(told) >= 0 ? told : undefined;
}

function sumOf(sizes: readonly number[]): number {
  return sizes.reduce((sum, size) => Math.min(sum + size, Number.MAX_SAFE_INTEGER), 0);
}

/** The engine's own lines have some hundred characters, and its errors quote a part of what a registry says. */
const PROGRESS_CHARS_MAX = 1024 * 1024;
const PROGRESS_VALUES_MAX = 1_000;

/**
 * Reads the progress of a pull to its end, and keeps none of it: a long pull has a hundred thousand lines. If a layer fails, the engine only writes
 * a line into the stream, which then ends as after a success. @throws Error with the words of the first such line
 */
export async function followPull(stream: NodeJS.ReadableStream, onEvent: (event: PullEvent) => void): Promise<void> {
  let failed: string | undefined;
  let held = '';
  stream.setEncoding('utf8');
  for await (const piece of stream) {
    const lines = (held + String(piece)).split('\n');
    held = lines.pop() ?? '';
    if (held.length > PROGRESS_CHARS_MAX) throw new Error('the engine sent a progress line of impossible length');
    for (const line of lines) {
      if (line.trim() === '') continue;
      const event = parseJson(line, PROGRESS_VALUES_MAX) as PullEvent;
      failed ??= event.error;
      onEvent(event);
    }
  }
  if (failed !== undefined) throw new Error(failed);
}

/** Header of the engine's frame: one byte for the stream, three zero bytes, four for the length of the payload. */
const HEADER_BYTES = 8;
const STDERR = 2;
/** The engine cuts lines at 16 KiB, so a longer frame is a fault. */
const FRAME_BYTES_MAX = 1024 * 1024;

/** One JSON line for each line of the log. Throws if the engine sends anything but log frames. */
export async function* logLines(raw: Readable): AsyncGenerator<string> {
  for await (const { kind, text } of frames(raw)) {
    const at = text.indexOf(' ');
    const line: LogLine = {
      at: text.slice(0, at),
      stream: kind === STDERR ? 'stderr' : 'stdout',
      line: text.slice(at + 1).replace(/\r?\n$/, ''),
    };
    yield `${JSON.stringify(line)}\n`;
  }
}

/** Sends the lines of a log. The stream ends with the log; a reader that disconnects ends the reading. */
export function sendLines(raw: Readable, stream: Duplex): void {
  pipeline(Readable.from(logLines(raw)), stream, () => {
    raw.destroy();
    stream.destroy();
  });
  // A generator that waits for the next line cannot be ended, and a silent container may never write one.
  stream.once('close', () => raw.destroy());
  stream.resume();
}

/**
 * The words with which the engine, or our driver, refuses a container whose image is wrong in itself: its user, its working directory, or a place of
 * its volumes. A refusal has all words of one line. These are no regular expression, because the image chooses a part of the text.
 */
const IMAGE_FAULTS: readonly (readonly string[])[] = [
  ['unable to find user '],
  ['unable to find group '],
  ['uids and gids must be in range'],
  ['cannot mount volume over existing file'],
  [VOLUME_TOO_LONG],
  [VOLUMES_TOO_MANY],
  ['mkdir: ', ' is not a directory'],
  ['lstat ', ': not a directory'],
];
/** The end of the folder of the host in which the engine has put the files of the container. */
const ROOT_ON_HOST = '/merged';

/** The refusal in words for the customer, if every host would refuse this image; undefined if the host may be the reason. */
export function imageFaultOf(refusal: string): string | undefined {
  if (!IMAGE_FAULTS.some((words) => words.every((each) => refusal.includes(each)))) return undefined;
  return `the image cannot be run: ${refusal.split(' ').map(pathInside).join(' ')}`;
}

function pathInside(word: string): string {
  const at = word.startsWith('/') ? word.indexOf(`${ROOT_ON_HOST}/`) : -1;
  return at < 0 ? word : word.slice(at + ROOT_ON_HOST.length);
}

/** The status of the engine's refusal; undefined if it did not answer. */
export function statusOf(error: unknown): number | undefined {
  if (typeof error !== 'object' || error === null || !('statusCode' in error)) return undefined;
  return typeof error.statusCode === 'number' ? error.statusCode : undefined;
}

async function* frames(raw: Readable): AsyncGenerator<{ kind: number; text: string }> {
  let held = Buffer.alloc(0);
  for await (const chunk of raw) {
    held = Buffer.concat([held, chunk as Buffer]);
    while (held.length >= HEADER_BYTES) {
      const length = held.readUInt32BE(4);
      if (length > FRAME_BYTES_MAX) throw new Error('the engine sent a log frame of impossible length');
      const end = HEADER_BYTES + length;
      if (held.length < end) break;
      yield { kind: held[0] ?? 0, text: held.toString('utf8', HEADER_BYTES, end) };
      held = held.subarray(end);
    }
  }
}
