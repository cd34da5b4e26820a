// Pure: how each kind of server is asked for a video, and what it says about one.
import { z } from 'zod';
import type { Upstream } from '../catalog/models.ts';
import type { Wanted } from './store.ts';

/** The body of a submission, and its media type. */
export interface Submission {
  contentType: string;
  body: string;
}

/** `boundary`: nobody can guess it, so no text can hold it. */
export function submissionFor({ engine, model }: Upstream, wanted: Wanted, boundary: string): Submission {
  const members = { model, prompt: wanted.prompt, ...wanted.parameters };
  if (engine !== 'vllm_omni') return { contentType: 'application/json', body: JSON.stringify(members) };
  // vLLM-Omni takes forms alone, and wants each value as text, `seconds` too.
  const parts = Object.entries(members).map(
    ([name, value]) => `--${boundary}\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
  );
  return { contentType: `multipart/form-data; boundary=${boundary}`, body: `${parts.join('')}--${boundary}--\r\n` };
}

/** Ends the work on a job, and drops what was made. SGLang has nothing like it: what it has begun it finishes. */
export function takesDelete({ engine }: Upstream): boolean {
  return engine === 'vllm_omni';
}

/** It becomes a part of a path. */
const Accepted = z.object({ id: z.string().regex(/^[\w-][\w.:-]{0,199}$/) });

/** The server's id of a job that it has taken; undefined where its answer is none of the kind. */
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

/** Undefined where the answer does not say how a job stands. */
export function standingOf(answer: unknown): Standing | undefined {
  const { data } = Standing.safeParse(answer);
  if (data === undefined) return undefined;
  return { status: data.status, progress: Math.min(Math.max(0, Math.floor(data.progress ?? 0)), 100) };
}
