// The control plane's end of jobs for the fake one: it gives URLs, keeps events and stores what is uploaded.
import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { fileOf, type JobFile, type SentJobEvent } from '../../shared/protocol/job.ts';
import type { AgentMessage, ServerMessage } from '../../shared/protocol/link.ts';

export interface JobEnd {
  /** Files by name: inputs that the test puts here, and what the agent has uploaded. */
  files: Map<string, Buffer>;
  /** The events of each job, each once. */
  events: Map<string, SentJobEvent[]>;
  /** Puts an input here. */
  input(name: string, content: string): JobFile;
  /** True if the message was one of a job. */
  take(message: AgentMessage, send: (message: ServerMessage) => void): boolean;
  /** Answers requests to the URLs. */
  serve(request: IncomingMessage, response: ServerResponse): void;
}

export const FILES_PATH = '/files/';

export function createJobEnd(origin: () => string): JobEnd {
  const files = new Map<string, Buffer>();
  const events: JobEnd['events'] = new Map();
  const puts = new Set<string>();
  return {
    files,
    events,
    input: (name, content) => {
      files.set(name, Buffer.from(content));
      return { name, bytes: Buffer.byteLength(content), sha256: createHash('sha256').update(content).digest('hex') };
    },
    take: (message, send) => {
      if (message.type === 'job_url') {
        const name = fileOf(message.purpose);
        const isStored = message.purpose.kind !== 'input' && puts.delete(name);
        const url = `${origin()}${FILES_PATH}${name}`;
        const answer = isStored ? { kind: 'stored' as const } : { kind: 'url' as const, url, headers: {} };
        send({ type: 'job_url', workload_id: message.workload_id, name, answer });
      } else if (message.type === 'job_events') {
        const kept = events.get(message.workload_id) ?? [];
        kept.push(...message.events.filter(({ end }) => end > (kept.at(-1)?.end ?? 0)));
        events.set(message.workload_id, kept);
        send({
          type: 'job_events_kept',
          workload_id: message.workload_id,
          offset: kept.at(-1)?.end ?? 0,
        });
      } else return false;
      return true;
    },
    serve: (request, response) => {
      const name = request.url?.slice(FILES_PATH.length) ?? '';
      if (request.method === 'PUT') {
        void buffer(request).then((content) => {
          files.set(name, content);
          puts.add(name);
          response.writeHead(201).end('{}');
        });
      } else response.writeHead(files.has(name) ? 200 : 404).end(files.get(name));
    },
  };
}
