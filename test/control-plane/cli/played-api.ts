// An API that a test plays: one instance, its program, and its log.
import { once } from 'node:events';
import type { Instance } from '../../../shared/api/instance.ts';
import { openSvc, type SvcResult } from '../../kit/svc.ts';

export const ID = 'i-aaaaaaaaaaaaaaaaaaaa';
export const RUN = ['run', '--rm', '--image', 'busybox', '--', 'sh'];

export const lineOf = (line: string, at = '2026-01-01T00:00:00.000000001Z'): string =>
  `data: ${JSON.stringify({ stream: 'stdout', line, at })}\n\n`;
export const END = 'event: end\ndata: {}\n\n';

/** A proxy has no answer of the API. */
export const AWAY = 'away';
/** The request is never answered. */
export const SILENT = 'silent';
export const awayFor = (requests: number): (typeof AWAY)[] => Array.from({ length: requests }, () => AWAY);

export type Exit = NonNullable<Instance['main_exit']>;
export const exited = (code: number): Exit => ({ code, signal: null });

export interface Played {
  /** How the program has ended at each read of the instance, or AWAY; null while it runs. The last one stays. */
  ends: (Exit | typeof AWAY | null)[];
  /** The reason of the status at each read. */
  reason?: string;
  /** What each request of the log is answered with, or AWAY. */
  logs: (string | ReadableStream<Uint8Array>)[];
  /** What a DELETE is answered with; 202 if left out. */
  deleted?: number | typeof AWAY | typeof SILENT;
  /** What each read of the launch says of its instance; the last one stays. */
  placed?: (string | null)[];
  /** The status at each read. */
  status?: string | (() => string);
  /** Called with each request of `asked`. */
  onAsked?(request: string): void;
}

export interface Play {
  fetch: typeof fetch;
  /** Requests other than reads of the instance, in order. */
  asked: string[];
  /** The bodies of the launches. */
  launches: unknown[];
}

/** An API with one instance, which runs at once. */
export function play({ ends, reason, logs, deleted = 202, placed = [ID], status = 'running', onAsked }: Played): Play {
  const asked: string[] = [];
  const bodies: unknown[] = [];
  let [reads, streams, launches] = [0, 0, 0];
  const away = (): Response => new Response(null, { status: 502 });
  const answer = (method: string, path: string): Response => {
    if (method === 'GET' && path === `/v1/instances/${ID}`) {
      const end = ends[Math.min(reads, ends.length - 1)];
      reads += 1;
      if (end === AWAY) return away();
      const now = typeof status === 'string' ? status : status();
      return Response.json({ id: ID, status: now, status_reason: reason, ...(end === null ? {} : { main_exit: end }) });
    }
    asked.push(`${method} ${path}`);
    onAsked?.(`${method} ${path}`);
    if (path.startsWith(`/v1/instances/${ID}/logs`)) {
      const body = logs[streams];
      streams += 1;
      if (body === AWAY) return away();
      return body === undefined ? Response.json({}, { status: 409 }) : new Response(body);
    }
    if (method === 'DELETE') return deleted === AWAY ? away() : new Response('{}', { status: Number(deleted) });
    if (method === 'POST' || path.startsWith('/v1/operations/')) {
      const id = placed[Math.min(launches, placed.length - 1)];
      launches += 1;
      return Response.json({ operation_id: 'op', state: 'in_progress', resource_id: id });
    }
    return path === '/v1/events' ? new Response('') : Response.json({ operation_id: 'op', state: 'pending' });
  };
  return {
    asked,
    launches: bodies,
    fetch: async (url, init) => {
      if (init?.method === 'POST' && init.body !== undefined) bodies.push(await new Request(url, init).json());
      const { pathname, search } = new URL(new Request(url).url);
      const signal = init?.signal ?? new AbortController().signal;
      if (init?.method === 'DELETE' && deleted === SILENT) {
        asked.push(`DELETE ${pathname}`);
        onAsked?.(`DELETE ${pathname}`);
        await once(signal, 'abort');
        signal.throwIfAborted();
      }
      const { status, body } = answer(init?.method ?? 'GET', pathname + search);
      return new Response(body?.pipeThrough(new TransformStream(), { signal }), { status });
    },
  };
}

export function svcOf(played: Play, ...argv: string[]): Promise<SvcResult> {
  const svc = openSvc({ baseUrl: 'https://api.test/v1', key: 'svc_live_x', fetch: played.fetch });
  return svc.run(...argv).finally(() => svc.close());
}
