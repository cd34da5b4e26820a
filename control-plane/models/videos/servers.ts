// The client for video servers: submit a job, read its status, fetch its file, remove it. Every answer has a size limit. Each kind of server has its
// own dialect, which pure functions write and read.
import { messageOf } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { UPSTREAM_JSON_VALUES_MAX, VIDEO_FETCH_MS_MAX } from '../../../shared/limits.ts';
import type { Exchange, ExchangeRequest, Exchanges } from '../../base/outbound/exchange.ts';
import { isUnsent, OutboundError } from '../../base/outbound/policy.ts';
import type { Upstream } from '../catalog/models.ts';
import { jsonOf, readText } from '../../base/outbound/outbound.ts';
import { headersFor } from '../catalog/model-servers.ts';
import type { Places } from './places.ts';
import type { Wanted } from './store.ts';
import { z } from 'zod';

/** Limit for the whole answer to a submission or a status request. */
const STATUS_MS = 30_000;
const ANSWER_BYTES_MAX = 256 * 1024;
const LOGGED_CHARS = 500;

/** Servers and proxies say this in place of taking a job. 401 to 405 mean that the server is set up wrongly. */
const NOT_TAKEN: readonly number[] = [401, 403, 404, 405, 429, 502, 503];
const REFUSING: readonly number[] = [400, 413, 422];
const GONE: readonly number[] = [404, 410];

export type Answer =
  | { is: 'accepted'; upstreamJobId: string }
  /** The server did not accept the job. Another one may. */
  | { is: 'busy'; reason: string }
  /** No server would accept this request. */
  | { is: 'refused'; reason: string }
  /** It is unknown whether the server has accepted the job. */
  | { is: 'lost'; reason: string };

export type JobReport = Standing | { status: 'gone' } | { status: 'silent'; reason: string };

export interface Servers {
  submit(upstream: Upstream, wanted: Wanted, signal: AbortSignal): Promise<Answer>;
  report(upstream: Upstream, upstreamJobId: string, signal: AbortSignal): Promise<JobReport>;
  /** The file as a stream. @throws OutboundError, also for an answer that is not 200 */
  file(upstream: Upstream, upstreamJobId: string, signal: AbortSignal): Promise<Exchange>;
  /** Removes a job from its server. False if it must be tried again. */
  release(upstream: Upstream, upstreamJobId: string, signal: AbortSignal): Promise<boolean>;
}

/** A submission has an answer, or counts as lost, within this time. */
export function submitMsMax({ connect_ms: connectMs }: Upstream): number {
  return connectMs + STATUS_MS;
}

interface ServersDeps {
  exchanges: Exchanges;
  ids: Ids;
  places: Pick<Places, 'noteAnswer' | 'noteSilence'>;
}

export function openServers({ exchanges, ids, places }: ServersDeps): Servers {
  type Asking = Pick<ExchangeRequest, 'method' | 'signal'> & { path: string; contentType?: string; body?: string };
  const begin = (upstream: Upstream, totalMs: number, { path, contentType, ...asking }: Asking): Promise<Exchange> =>
    exchanges.open({
      body: '',
      ...asking,
      url: `${upstream.base_url}${path}`,
      headers: { ...headersFor(upstream), ...(contentType === undefined ? {} : { 'content-type': contentType }) },
      connectMs: upstream.connect_ms,
      statusMs: STATUS_MS,
      idleMs: upstream.idle_ms,
      totalMs: upstream.connect_ms + totalMs,
    });
  /** Notes whether the server answers. A request that we gave up says nothing about it. */
  const noted = async <T>({ base_url: url }: Upstream, signal: AbortSignal, answer: Promise<T>): Promise<T> => {
    try {
      const answered = await answer;
      places.noteAnswer(url);
      return answered;
    } catch (error) {
      if (!signal.aborted) places.noteSilence(url);
      throw error;
    }
  };
  const read = (upstream: Upstream, asking: Asking): Promise<{ status: number; text: string }> => {
    const whole = async (): Promise<{ status: number; text: string }> => {
      const exchange = await begin(upstream, STATUS_MS, asking);
      return { status: exchange.status, text: await readText(exchange.body, ANSWER_BYTES_MAX) };
    };
    return noted(upstream, asking.signal, whole());
  };

  return {
    submit: async (upstream, wanted, signal) => {
      const submission = submissionFor(upstream, wanted, ids.secret(24));
      return read(upstream, { method: 'POST', path: '/videos', ...submission, signal }).then(answerOf, broken);
    },
    report: (upstream, id, signal) =>
      read(upstream, { method: 'GET', path: `/videos/${id}`, signal }).then(reportOf, (error: unknown) => ({
        status: 'silent',
        reason: messageOf(error),
      })),
    file: async (upstream, id, signal) => {
      const asking: Asking = { method: 'GET', path: `/videos/${id}/content`, signal };
      const exchange = await noted(upstream, signal, begin(upstream, VIDEO_FETCH_MS_MAX, asking));
      if (exchange.status === 200) return exchange;
      exchange.end();
      throw new OutboundError('protocol', `it answers ${exchange.status} in place of the file`);
    },
    release: (upstream, id, signal) =>
      read(upstream, { method: 'DELETE', path: `/videos/${id}`, signal }).then(
        ({ status }) => status < 300 || GONE.includes(status),
        () => false,
      ),
  };
}

/** The body of a submission, and its media type. */
export interface Submission {
  contentType: string;
  body: string;
}

/** True if the server has a DELETE that stops a job and removes its video. SGLang has none and finishes every job. */
export function takesDelete({ engine }: Upstream): boolean {
  return engine === 'vllm_omni';
}

/** The id is strict, because it becomes part of a path. */
const Accepted = z.object({ id: z.string().regex(/^[\w-][\w.:-]{0,199}$/) });

const Standing = z.object({
  status: z.enum(['queued', 'in_progress', 'completed', 'failed']),
  progress: z.number().nullish().catch(undefined),
});

export interface Standing {
  status: 'queued' | 'in_progress' | 'completed' | 'failed';
  /** Percent, from 0 to 100. */
  progress: number;
}

/** `boundary` is random, so no text can contain it. */
function submissionFor({ engine, model }: Upstream, wanted: Wanted, boundary: string): Submission {
  const members = { model, prompt: wanted.prompt, ...wanted.parameters };
  if (engine !== 'vllm_omni') return { contentType: 'application/json', body: JSON.stringify(members) };
  // vLLM-Omni accepts forms only, with each value as text.
  const parts = Object.entries(members).map(
    ([name, value]) => `--${boundary}\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
  );
  return { contentType: `multipart/form-data; boundary=${boundary}`, body: `${parts.join('')}--${boundary}--\r\n` };
}

/** The server's id of an accepted job; undefined if the answer has none. */
function acceptedId(answer: unknown): string | undefined {
  return Accepted.safeParse(answer).data?.id;
}

/** The status of a job at its server; undefined if the answer has none. */
function standingOf(answer: unknown): Standing | undefined {
  const { data } = Standing.safeParse(answer);
  if (data === undefined) return undefined;
  return { status: data.status, progress: Math.min(Math.max(0, Math.floor(data.progress ?? 0)), 100) };
}

function answerOf({ status, text }: { status: number; text: string }): Answer {
  const upstreamJobId = status < 300 ? acceptedId(jsonOf(text, UPSTREAM_JSON_VALUES_MAX)) : undefined;
  if (upstreamJobId !== undefined) return { is: 'accepted', upstreamJobId };
  const reason = `it answers ${status}: ${text.slice(0, LOGGED_CHARS)}`;
  const isMoved = status >= 300 && status < 400;
  if (isMoved || NOT_TAKEN.includes(status)) return { is: 'busy', reason };
  return { is: REFUSING.includes(status) ? 'refused' : 'lost', reason };
}

function broken(error: unknown): Answer {
  return { is: isUnsent(error) ? 'busy' : 'lost', reason: messageOf(error) };
}

function reportOf({ status, text }: { status: number; text: string }): JobReport {
  if (GONE.includes(status)) return { status: 'gone' };
  const standing = status === 200 ? standingOf(jsonOf(text, UPSTREAM_JSON_VALUES_MAX)) : undefined;
  return standing ?? { status: 'silent', reason: `it answers ${status}: ${text.slice(0, LOGGED_CHARS)}` };
}
