// The part of the link that jobs need.
import type { JobUrlAnswer, JobUrlPurpose, SentJobEvent } from '../../shared/protocol/job.ts';

/** Requests of jobs over the link. Each rejects if no answer comes. */
export interface JobLink {
  /** Asks for the presigned URL of a file. */
  url(workloadId: string, purpose: JobUrlPurpose): Promise<JobUrlAnswer>;
  /** Sends events; resolves with the offset up to which the control plane has stored them. */
  events(workloadId: string, events: SentJobEvent[]): Promise<number>;
}
