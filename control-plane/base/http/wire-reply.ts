// A reply in its final form: it is sent, and stored for a repeated request.
import type { Readable } from 'node:stream';
import type { Reply } from './route.ts';

export interface WireReply {
  status: number;
  /** Header names are in lower case. */
  headers: Record<string, string>;
  body: string;
  /** Sent instead of the body. */
  stream?: Readable;
}

export function toWire(reply: Reply): WireReply {
  const named = Object.entries(reply.headers ?? {}).map(([name, value]): [string, string] => [
    name.toLowerCase(),
    value,
  ]);
  const headers = Object.fromEntries(named);
  if (reply.stream !== undefined) return { status: reply.status, headers, body: '', stream: reply.stream };
  if (reply.body === undefined) return { status: reply.status, headers, body: '' };
  if (typeof reply.body === 'string' && headers['content-type'] !== undefined) {
    return { status: reply.status, headers, body: reply.body };
  }
  const contentType = headers['content-type'] ?? 'application/json; charset=utf-8';
  return {
    status: reply.status,
    headers: { ...headers, 'content-type': contentType },
    body: JSON.stringify(reply.body),
  };
}
