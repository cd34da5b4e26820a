// The messages of jobs on the link. Each request waits for its answer, because the host must repeat a request without an answer.
import type { Clock } from '../../shared/clock.ts';
import { fileOf, type JobUrlAnswer, type JobUrlPurpose, type SentJobEvent } from '../../shared/protocol/job.ts';
import type { AgentMessage, JobEventsKeptMessage, JobUrlMessage } from '../../shared/protocol/link.ts';

export interface JobMessages {
  /** @throws Error if no answer comes in time: there is no link, or the control plane cannot give a URL now */
  url(workloadId: string, purpose: JobUrlPurpose): Promise<JobUrlAnswer>;
  /** @throws Error if no answer comes in time */
  events(workloadId: string, events: SentJobEvent[]): Promise<number>;
  take(message: JobUrlMessage | JobEventsKeptMessage): void;
}

const ANSWER_MS_MAX = 20_000;

/** `send` sends over the link; without a link it does nothing. */
export function openJobMessages(clock: Clock, send: (message: AgentMessage) => void): JobMessages {
  const urls = openWaiting<JobUrlAnswer>(clock);
  const offsets = openWaiting<number>(clock);
  return {
    url: (id, purpose) =>
      urls.ask(`${id} ${fileOf(purpose)}`, () => send({ type: 'job_url', workload_id: id, purpose })),
    events: (id, events) => offsets.ask(id, () => send({ type: 'job_events', workload_id: id, events })),
    take: (message) => {
      const { workload_id: id } = message;
      if (message.type === 'job_url') urls.answer(`${id} ${message.name}`, message.answer);
      else offsets.answer(id, message.offset);
    },
  };
}

interface Waiting<T> {
  ask(key: string, send: () => void): Promise<T>;
  answer(key: string, value: T): void;
}

function openWaiting<T>(clock: Clock): Waiting<T> {
  const waiting = new Map<string, (value: T) => void>();
  return {
    ask: (key, send) => {
      const answer = Promise.withResolvers<T>();
      waiting.set(key, answer.resolve);
      const cancel = clock.after(ANSWER_MS_MAX, () =>
        answer.reject(new Error('the control plane has not answered about a job')),
      );
      send();
      return answer.promise.finally(() => {
        cancel();
        waiting.delete(key);
      });
    },
    answer: (key, value) => waiting.get(key)?.(value),
  };
}
