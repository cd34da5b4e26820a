// The events of jobs: their SQL, and how reports of a trainer become events that people read.
import { z } from 'zod';
import type { Ids } from '../../../shared/ids.ts';
import { FINE_TUNING_EVENTS_MAX } from '../../../shared/limits.ts';
import type { JobEvent } from '../../../shared/protocol/job.ts';
import { int, json, text } from '../../base/db/columns.ts';
import { type Query, sql, type Tx } from '../../base/db/db.ts';
import type { Attempt } from './attempts.ts';
import { countEvents, type Job } from './store.ts';

const EventRow = z.object({
  id: text,
  job_id: text,
  level: z.enum(['info', 'warn', 'error']),
  type: z.enum(['message', 'metrics']),
  message: text,
  data: json(z.record(z.string(), z.union([z.string(), z.number()]))),
  created_ms: int,
});
export type EventRow = z.infer<typeof EventRow>;
export type NewEvent = Pick<EventRow, 'level' | 'message'> & Partial<Pick<EventRow, 'type' | 'data'>>;

/** How many events of a job are kept for messages, which say why it moves or fails. A long training has more metrics than fit. */
const MESSAGES_KEPT = 1_000;

/** Appends events until the job has FINE_TUNING_EVENTS_MAX of them, and metrics until there is only room for messages. */
export async function appendEvents(
  tx: Tx,
  job: Job,
  events: readonly NewEvent[],
  { ids, nowMs }: { ids: Ids; nowMs: number },
): Promise<void> {
  const taken: NewEvent[] = [];
  for (const event of events) {
    const max = FINE_TUNING_EVENTS_MAX - (event.type === 'metrics' ? MESSAGES_KEPT : 0);
    if (job.event_count + taken.length < max) taken.push(event);
  }
  for (const { level, message, type = 'message', data = {} } of taken) {
    await tx.run(
      sql`insert into finetuning_events (id, job_id, level, type, message, data, created_ms)
          values (${ids.prefixed('ftevent')}, ${job.id}, ${level}, ${type}, ${message}, ${JSON.stringify(data)}, ${nowMs})`,
    );
  }
  if (taken.length > 0) await countEvents(tx, job.id, taken.length);
}

export async function forgetEvents(tx: Tx, jobId: string): Promise<void> {
  await tx.run(sql`delete from finetuning_events where job_id = ${jobId}`);
}

export function pageOfEvents(
  query: Query,
  jobId: string,
  { afterId, order, count }: { afterId: string | undefined; order: 'asc' | 'desc'; count: number },
): Promise<EventRow[]> {
  const isAfter = afterId === undefined ? sql`1 = 1` : order === 'asc' ? sql`id > ${afterId}` : sql`id < ${afterId}`;
  return query.all(
    EventRow,
    sql`select id, job_id, level, type, message, data, created_ms from finetuning_events where job_id = ${jobId} and ${isAfter}
        order by id ${order === 'asc' ? sql`asc` : sql`desc`} limit ${count}`,
  );
}

/** What a trainer reports, as an event. Checkpoints become events once they are verified. */
export function eventOf(event: JobEvent, attempt: Attempt, nowMs: number): NewEvent | undefined {
  const { type, level, message, step, total_steps: total } = event;
  if (type === 'checkpoint') return undefined;
  if (type === 'message') return message === undefined ? undefined : { level, message };
  const eta = etaSeconds(attempt, { step, total, nowMs });
  const known = { step, total_steps: total, epoch: event.epoch, loss: event.loss, lr: event.lr, tokens: event.tokens };
  const figures = Object.entries({ ...known, eta_seconds: eta }).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const],
  );
  const at = step === undefined ? 'Training' : `Step ${step}${total === undefined ? '' : ` of ${total}`}`;
  const loss = event.loss === undefined ? '' : `: loss ${Number(event.loss.toPrecision(4))}`;
  return { level, type: 'metrics', message: message ?? `${at}${loss}`, data: Object.fromEntries(figures) };
}

/** Estimates the seconds until the end from the speed of this attempt alone, because another machine may have been faster. */
function etaSeconds(
  { started_ms: startedMs, resume_step: from }: Attempt,
  { step, total, nowMs }: { step: number | undefined; total: number | undefined; nowMs: number },
): number | undefined {
  if (startedMs === null || step === undefined || total === undefined || step <= from || step > total) return undefined;
  return Math.round(((nowMs - startedMs) / 1000 / (step - from)) * (total - step));
}
