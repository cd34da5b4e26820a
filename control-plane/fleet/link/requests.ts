// Requests of hosts: logins to registries, and the URLs and events of jobs. A host that gets no answer asks again. So a request that fails, because
// the row of a job cannot be read for example, keeps its link, on which all rentals of the host depend. Logins and URLs take long. They are worked on
// beside the other messages of the link, a few of each machine at a time.
import { messageOf, ServiceError } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import { fileOf, type JobUrlAnswer, type JobUrlPurpose, type SentJobEvent } from '../../../shared/protocol/job.ts';
import type { JobUrlRequest, PullAnswer, PullLogin, ServerMessage } from '../../../shared/protocol/link.ts';
import type { Session } from './session.ts';

/** Largest number of requests of one machine that are worked on at once: about one for each of its GPUs. Requests beyond it are not answered. */
const PER_MACHINE_MAX = 16;

/** The rooms above that know the answers. */
export interface RequestHandlers {
  /**
   * The login that the machine needs to pull the private image of the workload; undefined if the workload is not one of its own. May take
   * long.
   * @throws ServiceError `image_unavailable` if the image cannot be pulled any more. This refusal is sent to the host.
   */
  pullLogin(machineId: string, workloadId: string): Promise<PullLogin | null | undefined>;
  /** The URL that a machine needs for a file of its job; undefined if the job is not one of its own. May take long. */
  jobUrl(machineId: string, workloadId: string, purpose: JobUrlPurpose): Promise<JobUrlAnswer | undefined>;
  /** Stores events of a job. Resolves with the offset up to which they are stored; undefined if the job is not the machine's. */
  onJobEvents(machineId: string, workloadId: string, events: readonly SentJobEvent[]): Promise<number | undefined>;
}

export interface Requests {
  pullLogin(session: Session, workloadId: string): Promise<void>;
  jobUrl(session: Session, request: JobUrlRequest): Promise<void>;
  jobEvents(session: Session, sent: { workload_id: string; events: readonly SentJobEvent[] }): Promise<void>;
}

export function openRequests({ handlers, log }: { handlers: RequestHandlers; log: Log }): Requests {
  const underWay = new Map<string, number>();
  const loginOf = async (machineId: string, workloadId: string): Promise<PullAnswer | null | undefined> => {
    try {
      return await handlers.pullLogin(machineId, workloadId);
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'image_unavailable') throw error;
      return { kind: 'refused', detail: error.details.detail.slice(0, 512) };
    }
  };
  /** Sends what `find` returns. If `find` returns undefined, the workload does not belong to the machine. */
  const answer = async (
    session: Session,
    asked: { what: string; workloadId: string },
    find: () => Promise<ServerMessage | undefined>,
  ): Promise<void> => {
    const { machineId } = session;
    const fields = { machine_id: machineId, workload_id: asked.workloadId, what: asked.what };
    const count = underWay.get(machineId) ?? 0;
    if (count >= PER_MACHINE_MAX) return;
    underWay.set(machineId, count + 1);
    try {
      const message = await find();
      if (message === undefined)
        log.warn(fields, 'a request of a host about a workload that it does not have was refused');
      else session.send(message);
    } catch (error) {
      log.warn({ ...fields, reason: messageOf(error) }, 'a request of a host could not be answered');
    } finally {
      const left = (underWay.get(machineId) ?? 1) - 1;
      if (left === 0) underWay.delete(machineId);
      else underWay.set(machineId, left);
    }
  };
  return {
    pullLogin: (session, workloadId) =>
      answer(session, { what: 'pull_login', workloadId }, async () => {
        const login = await loginOf(session.machineId, workloadId);
        return login === undefined ? undefined : { type: 'pull_login', workload_id: workloadId, login };
      }),
    jobUrl: (session, { workload_id: workloadId, purpose }) =>
      answer(session, { what: 'job_url', workloadId }, async () => {
        const found = await handlers.jobUrl(session.machineId, workloadId, purpose);
        if (found === undefined) return undefined;
        return { type: 'job_url', workload_id: workloadId, name: fileOf(purpose), answer: found };
      }),
    jobEvents: (session, { workload_id: workloadId, events }) =>
      answer(session, { what: 'job_events', workloadId }, async () => {
        const offset = await handlers.onJobEvents(session.machineId, workloadId, events);
        return offset === undefined ? undefined : { type: 'job_events_kept', workload_id: workloadId, offset };
      }),
  };
}
