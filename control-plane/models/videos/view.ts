// A video job as customers see it (specification 2.13), without its server.
import { inferenceCode } from '../../../shared/api/inference.ts';
import type { VideoJob } from '../../../shared/api/videos.ts';
import { beginningOf } from '../../../shared/beginning.ts';
import { centsFloor, dollarText } from '../../../shared/money.ts';
import type { Job } from './store.ts';

/** Enough to tell videos apart. A page of whole prompts could have megabytes. */
const PROMPT_UNITS_MAX = 500;

export function videoView(job: Job): VideoJob {
  const { id, status, progress, seconds, error_code: code, error_message: message } = job;
  const completedMs = job.expires_ms === null ? null : job.ended_ms;
  return {
    id,
    object: 'video',
    model: job.model_id,
    status,
    progress,
    prompt: job.request === null ? null : beginningOf(job.request.prompt, PROMPT_UNITS_MAX),
    seconds,
    size: job.size,
    cost_cents: Number(centsFloor(job.charged_ucents)),
    cost: dollarText(job.charged_ucents),
    created_at: unixSeconds(job.created_ms),
    completed_at: completedMs === null ? null : unixSeconds(completedMs),
    expires_at: job.expires_ms === null ? null : unixSeconds(job.expires_ms),
    error: code === null ? null : { code: inferenceCode(code), message: message ?? '' },
  };
}

function unixSeconds(ms: number): number {
  return Math.floor(ms / 1000);
}
