// Drops the reports of a host that repeat the last one of its link. A host sends its reports every half minute, although mostly nothing has
// changed, and handling one costs several statements.
import { hash } from 'node:crypto';
import type { AgentMessage } from '../../../shared/protocol/link.ts';
import type { Session } from './session.ts';

export interface Reports {
  /** Calls `handle` unless the report equals the last one of its type that `handle` has accepted on this link. */
  take(session: Session, report: AgentMessage, handle: () => Promise<boolean>): Promise<void>;
}

/** Keeps a hash of each report, because the reports of all links would fill the memory. */
export function openReports(): Reports {
  const lastOf = new WeakMap<Session, Map<AgentMessage['type'], string>>();
  return {
    take: async (session, report, handle) => {
      const last = lastOf.get(session) ?? new Map<AgentMessage['type'], string>();
      const digest = hash('sha256', JSON.stringify(report), 'base64');
      if (last.get(report.type) === digest) return;
      last.delete(report.type);
      lastOf.set(session, last);
      if (await handle()) last.set(report.type, digest);
    },
  };
}
