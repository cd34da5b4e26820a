// How the files of a job travel: the requests for presigned URLs over the link, and the transfers by them. Downloads are checked
// by size and hash, uploads by size.
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { JobFile, JobUrlAnswer, JobUrlPurpose, SentJobEvent } from '../../shared/protocol/job.ts';

/** A connection on which nothing moves for this time is given up. */
const IDLE_MS_MAX = 60_000;
const ANSWER_CHARS_SHOWN = 200;
/** The blob exists: an earlier upload has succeeded, and its answer was lost. */
const STORED_ALREADY = new Set([409, 412]);

export interface Wire {
  /** PEM text of the authorities to trust in place of the public ones; undefined: the public ones. */
  ca: string | undefined;
  signal: AbortSignal;
}

/** The address from which a file is fetched, or to which it is put. */
interface Target {
  url: string;
  /** The request must have them. */
  headers: Record<string, string>;
}

/** Downloads into `path`. @throws Error if the bytes are not those of `file` */
export async function download(from: Target, path: string, file: JobFile, wire: Wire): Promise<void> {
  const answer = await exchange(from.url, { method: 'GET', headers: from.headers }, undefined, wire);
  if (answer.statusCode !== 200) throw new Error(`${file.name} could not be fetched: ${await wordsOf(answer)}`);
  const hash = createHash('sha256');
  let bytes = 0;
  const watched = async function* (source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const piece of source) {
      bytes += piece.length;
      if (bytes > file.bytes) break;
      hash.update(piece);
      yield piece;
    }
  };
  await pipeline(answer, watched, createWriteStream(path, { mode: 0o644 }), { signal: wire.signal });
  if (bytes !== file.bytes || hash.digest('hex') !== file.sha256)
    throw new Error(`what was fetched as ${file.name} has another size or hash`);
}

/** Uploads exactly `bytes` bytes of `source`. @throws Error unless the server has stored them, now or before */
export async function upload(to: Target, source: Readable, bytes: number, wire: Wire): Promise<void> {
  const headers = { 'content-type': 'application/octet-stream', ...to.headers, 'content-length': bytes };
  const answer = await exchange(to.url, { method: 'PUT', headers }, source, wire);
  const { statusCode = 0 } = answer;
  if ((statusCode >= 200 && statusCode < 300) || STORED_ALREADY.has(statusCode)) return void answer.resume();
  throw new Error(`an upload was refused: ${await wordsOf(answer)}`);
}

/** Requests of jobs over the link. Each rejects if no answer comes. */
export interface JobLink {
  /** Asks for the presigned URL of a file. */
  url(workloadId: string, purpose: JobUrlPurpose): Promise<JobUrlAnswer>;
  /** Sends events; resolves with the offset up to which the control plane has stored them. */
  events(workloadId: string, events: SentJobEvent[]): Promise<number>;
}

async function wordsOf(answer: IncomingMessage): Promise<string> {
  let words = '';
  // The end of the loop closes the connection, because the rest of the answer may have no end.
  for await (const piece of answer.setEncoding('utf8')) {
    words += piece;
    if (words.length >= ANSWER_CHARS_SHOWN) break;
  }
  return `${answer.statusCode} ${words.slice(0, ANSWER_CHARS_SHOWN)}`;
}

function exchange(
  url: string,
  options: RequestOptions,
  body: Readable | undefined,
  { ca, signal }: Wire,
): Promise<IncomingMessage> {
  const request = url.startsWith('https:') ? httpsRequest : httpRequest;
  const answer = Promise.withResolvers<IncomingMessage>();
  const call = request(url, { ...options, signal, timeout: IDLE_MS_MAX, ...(ca === undefined ? {} : { ca }) });
  call.once('response', answer.resolve);
  call.once('timeout', () => call.destroy(new Error('nothing moved on the connection for a minute')));
  call.on('error', answer.reject);
  // The server may answer before the whole body is sent. Then that answer counts, and not the failure of the rest of the body.
  if (body === undefined) call.end();
  else pipeline(body, call).catch(answer.reject);
  return answer.promise;
}
