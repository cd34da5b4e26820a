// Requests of this host that the control plane answers over the link: logins for private images, and the URLs and events of jobs. Each
// request waits for its answer, because the host must repeat a request without an answer.
import type { Clock } from '../../shared/clock.ts';
import { fileOf, type JobUrlAnswer, type JobUrlPurpose, type SentJobEvent } from '../../shared/protocol/job.ts';
import type {
  AgentMessage,
  JobEventsKeptMessage,
  JobUrlMessage,
  PullAnswer,
  PullLoginMessage,
} from '../../shared/protocol/link.ts';

/** This is longer than the control plane waits for a registry. */
const ANSWER_MS_MAX = 20_000;

/** The logins are requested right before each pull. They are never written to disk. */
export interface PullLogins {
  /** @throws Error if no answer comes in time: there is no link, or the registry does not answer the control plane */
  ask(workloadId: string): Promise<PullAnswer | null>;
  take(message: PullLoginMessage): void;
}

/** `send` sends the request over the link; without a link it does nothing. */
export function openPullLogins(clock: Clock, send: (workloadId: string) => void): PullLogins {
  const failure = 'the control plane has sent no login for the registry of this private image';
  const logins = openWaiting<PullAnswer | null>(clock, failure);
  return {
    ask: (workloadId) => logins.ask(workloadId, () => send(workloadId)),
    take: ({ workload_id, login }) => logins.answer(workload_id, login),
  };
}

export interface JobMessages {
  /** @throws Error if no answer comes in time: there is no link, or the control plane cannot give a URL now */
  url(workloadId: string, purpose: JobUrlPurpose): Promise<JobUrlAnswer>;
  /** @throws Error if no answer comes in time */
  events(workloadId: string, events: SentJobEvent[]): Promise<number>;
  take(message: JobUrlMessage | JobEventsKeptMessage): void;
}

/** `send` sends over the link; without a link it does nothing. */
export function openJobMessages(clock: Clock, send: (message: AgentMessage) => void): JobMessages {
  const failure = 'the control plane has not answered about a job';
  const urls = openWaiting<JobUrlAnswer>(clock, failure);
  const offsets = openWaiting<number>(clock, failure);
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
  /** Rejects with `failure` if no answer comes in time. */
  ask(key: string, send: () => void): Promise<T>;
  answer(key: string, value: T): void;
}

function openWaiting<T>(clock: Clock, failure: string): Waiting<T> {
  const waiting = new Map<string, (value: T) => void>();
  return {
    ask: (key, send) => {
      const answer = Promise.withResolvers<T>();
      waiting.set(key, answer.resolve);
      const cancel = clock.after(ANSWER_MS_MAX, () => answer.reject(new Error(failure)));
      send();
      return answer.promise.finally(() => {
        cancel();
        waiting.delete(key);
      });
    },
    answer: (key, value) => waiting.get(key)?.(value),
  };
}
