// A scripted model server for videos: real HTTP in the dialects of vLLM-Omni and SGLang. A test sets the status of its jobs.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

export interface ServerJob {
  id: string;
  /** What it was asked for: texts by vLLM-Omni's form, JSON by SGLang. */
  fields: Record<string, unknown>;
  status: 'queued' | 'in_progress' | 'completed' | 'failed';
  progress: number;
  file: Buffer;
}

/** The server sends this in place of its usual answer. */
export interface Scripted {
  status?: number;
  body?: object | string | Buffer;
  headers?: Record<string, string>;
  /** The job is taken, and then this is said in place of that. */
  takes?: boolean;
  /** What follows the last words: the end, silence, or a cut connection. */
  ending?: 'end' | 'stall' | 'cut';
  /** Time in silence before the answer. */
  after?: Promise<unknown>;
}

export interface VideoServer {
  /** It ends with /v1. */
  baseUrl: string;
  /** `POST /videos` and the like, in the order in which they came. */
  asked: string[];
  headers: IncomingMessage['headers'][];
  /** The jobs in the order in which they were taken, without those that were deleted. */
  jobs: ServerJob[];
  /** How jobs stand once they are taken. */
  usual: Pick<ServerJob, 'status' | 'progress'>;
  /** Asked about each request before it is answered as usual. */
  script: (what: string) => Scripted | undefined;
  /** Resolves when `count` requests in total have arrived. */
  came(count: number): Promise<void>;
  close(): Promise<void>;
}

/** `bytes` long: the box that every MP4 begins with, and one of data. */
export function mp4(bytes = 64): Buffer {
  const file = Buffer.alloc(bytes, 'video');
  file.writeUInt32BE(16, 0);
  file.write('ftypisom', 4, 'latin1');
  file.writeUInt32BE(bytes - 16, 16);
  file.write('mdat', 20, 'latin1');
  return file;
}

export async function openVideoServer(engine: 'vllm_omni' | 'sglang' = 'vllm_omni'): Promise<VideoServer> {
  const sockets = new Set<Socket>();
  const taken = { count: 0 };
  let waiting: { count: number; resolve: () => void }[] = [];
  const http = createServer((request, response) => {
    void (async () => {
      const body = await bodyOf(request);
      const what = `${request.method} ${(request.url ?? '').replace('/v1', '')}`;
      server.asked.push(what);
      server.headers.push(request.headers);
      for (const { resolve } of waiting.filter(({ count }) => server.asked.length >= count)) resolve();
      waiting = waiting.filter(({ count }) => server.asked.length < count);
      const scripted = server.script(what);
      const usual = scripted === undefined || scripted.takes === true ? await answer(what, request, body) : {};
      await speak(response, { ...usual, ...scripted });
    })();
  });

  const answer = async (what: string, request: IncomingMessage, body: Buffer): Promise<Scripted> => {
    if (what === 'POST /videos') return take(await fieldsOf(engine, request, body));
    const [, method, id, part] = /^(\w+) \/videos\/([^/]+)(\/content)?$/.exec(what) ?? [];
    const job = server.jobs.find((each) => each.id === id);
    if (job === undefined) return { status: 404, body: { detail: 'Video not found' } };
    if (method === 'DELETE' && engine === 'vllm_omni') {
      server.jobs = server.jobs.filter((each) => each !== job);
      return { body: { id, object: 'video.deleted', deleted: true } };
    }
    if (method !== 'GET') return { status: 405, body: { detail: 'Method Not Allowed' } };
    if (part === undefined) return { body: viewOf(job) };
    if (job.status !== 'completed') return { status: 404, body: { detail: 'Generation is still in-progress' } };
    return { headers: { 'content-type': 'video/mp4' }, body: job.file };
  };

  const take = (fields: Record<string, unknown> | undefined): Scripted => {
    if (typeof fields?.['prompt'] !== 'string') return { status: 422, body: { detail: 'no prompt' } };
    taken.count += 1;
    const job = { id: `video_gen_${taken.count}`, fields, ...server.usual, file: mp4() };
    server.jobs.push(job);
    return { body: viewOf(job) };
  };

  http.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const server: VideoServer = {
    baseUrl: `http://127.0.0.1:${(http.address() as AddressInfo).port}/v1`,
    asked: [],
    headers: [],
    jobs: [],
    usual: { status: 'queued', progress: 0 },
    script: () => undefined,
    came: (count) =>
      server.asked.length >= count
        ? Promise.resolve()
        : new Promise((resolve) => {
            waiting.push({ count, resolve });
          }),
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => http.close(resolve));
    },
  };
  return server;
}

/** The view holds what only the server knows: none of it may reach a customer. */
function viewOf({ id, status, progress, fields }: ServerJob): object {
  const error = status === 'failed' ? { code: 'cuda', message: 'CUDA out of memory at /models/secret' } : null;
  return {
    id,
    object: 'video',
    status,
    progress,
    model: fields['model'],
    prompt: fields['prompt'],
    error,
    seconds: '4',
  };
}

/** Each takes one media type alone. */
async function fieldsOf(
  engine: string,
  { headers }: IncomingMessage,
  body: Buffer,
): Promise<Record<string, unknown> | undefined> {
  const contentType = headers['content-type'] ?? '';
  if (engine === 'sglang') {
    return contentType === 'application/json' ? (JSON.parse(body.toString()) as Record<string, unknown>) : undefined;
  }
  if (!contentType.startsWith('multipart/form-data')) return undefined;
  const form = await new Response(new Uint8Array(body), { headers: { 'content-type': contentType } }).formData();
  return Object.fromEntries(form);
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  return Buffer.concat(pieces);
}

async function speak(response: ServerResponse, { body = '', ...answer }: Scripted): Promise<void> {
  await answer.after;
  if (response.destroyed) return;
  const { ending = 'end' } = answer;
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  if (ending === 'stall' && bytes.length === 0) return;
  response.writeHead(answer.status ?? 200, {
    'content-type': 'application/json',
    ...(ending === 'end' ? { 'content-length': bytes.length } : {}),
    ...answer.headers,
  });
  await new Promise((resolve) => response.write(bytes, resolve));
  if (ending === 'cut') response.destroy();
  else if (ending === 'end') response.end();
}
