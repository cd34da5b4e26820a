// A reply as it goes over the wire: what is sent, and what is stored for an equal request later.
import type { Readable } from 'node:stream';
import type { Reply } from './route.ts';

export interface WireReply {
  status: number;
  /** Lower-case names. */
  headers: Record<string, string>;
  body: string;
  /** Instead of the body. */
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
