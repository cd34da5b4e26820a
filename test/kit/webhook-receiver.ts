// A receiver of webhooks, written with nothing but sections 6.2 and 6.3 of the specification: it shares no code with the sender.
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

const FRESH_SECONDS = 300;

export interface Received {
  id: string;
  type: string;
  created_at: string;
  data: { instance: { id: string; status: string; version: number } };
}

/** 204, or 400 if the signature is missing, wrong or stale. `body` is as it came. */
export function verify(
  secret: string,
  { headers, body }: { headers: IncomingHttpHeaders; body: Buffer },
  nowSeconds: number,
): 204 | 400 {
  const parts = String(headers['svc-signature'] ?? '')
    .split(',')
    .map((part) => part.split('=', 2));
  const time = parts.find(([name]) => name === 't')?.[1] ?? '';
  if (!/^\d+$/.test(time) || Math.abs(nowSeconds - Number(time)) > FRESH_SECONDS) return 400;
  const expected = createHmac('sha256', secret)
    .update(Buffer.concat([Buffer.from(`${time}.`), body]))
    .digest();
  const signed = parts.some(([name, hex = '']) => {
    const given = Buffer.from(hex, 'hex');
    return name === 'v1' && given.length === expected.length && timingSafeEqual(given, expected);
  });
  if (!signed) return 400;
  const event = JSON.parse(body.toString()) as Received;
  return headers['content-type'] === 'application/json' && headers['svc-event-id'] === event.id ? 204 : 400;
}
