// Builds the video requests for each kind of server, and reads the answers. Pure.
import { z } from 'zod';
import type { Upstream } from '../catalog/models.ts';
import type { Wanted } from './store.ts';

/** The body of a submission, and its media type. */
export interface Submission {
  contentType: string;
  body: string;
}

/** `boundary` is random, so no text can contain it. */
export function submissionFor({ engine, model }: Upstream, wanted: Wanted, boundary: string): Submission {
  const members = { model, prompt: wanted.prompt, ...wanted.parameters };
  if (engine !== 'vllm_omni') return { contentType: 'application/json', body: JSON.stringify(members) };
  // vLLM-Omni accepts forms only, with each value as text.
  const parts = Object.entries(members).map(
    ([name, value]) => `--${boundary}\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
  );
  return { contentType: `multipart/form-data; boundary=${boundary}`, body: `${parts.join('')}--${boundary}--\r\n` };
}

/** True if the server has a DELETE that stops a job and removes its video. SGLang has none and finishes every job. */
export function takesDelete({ engine }: Upstream): boolean {
  return engine === 'vllm_omni';
}

/** The id is strict, because it becomes part of a path. */
const Accepted = z.object({ id: z.string().regex(/^[\w-][\w.:-]{0,199}$/) });

/** The server's id of an accepted job; undefined if the answer has none. */
export function acceptedId(answer: unknown): string | undefined {
  return Accepted.safeParse(answer).data?.id;
}

const Standing = z.object({
  status: z.enum(['queued', 'in_progress', 'completed', 'failed']),
  progress: z.number().nullish().catch(undefined),
});

export interface Standing {
  status: 'queued' | 'in_progress' | 'completed' | 'failed';
  /** 0 to 100. */
  progress: number;
}

/** The status of a job at its server; undefined if the answer has none. */
export function standingOf(answer: unknown): Standing | undefined {
  const { data } = Standing.safeParse(answer);
  if (data === undefined) return undefined;
  return { status: data.status, progress: Math.min(Math.max(0, Math.floor(data.progress ?? 0)), 100) };
}
