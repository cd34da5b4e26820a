// How webhooks are signed: by the service, and by `svc webhook listen`, which posts events to a local address.
import { createHmac } from 'node:crypto';

/** The headers of an event. Each secret makes one signature, newest first. */
export function webhookHeaders(
  event: { id: string; body: string },
  secrets: readonly string[],
  nowMs: number,
): Record<string, string> {
  return {
    'content-type': 'application/json',
    'user-agent': 'svc-webhooks/1',
    'svc-event-id': event.id,
    'svc-signature': signatureHeader(event.body, secrets, Math.floor(nowMs / 1000)),
  };
}

/**
 * `t=<unix seconds>,v1=<hex>`: HMAC-SHA256 over `<t>.<body>`, one `v1` for each secret, newest first.
 * The key is the secret's 64 hexadecimal characters as text.
 */
export function signatureHeader(body: string, secrets: readonly string[], unixSeconds: number): string {
  const signatures = secrets.map(
    (secret) => `v1=${createHmac('sha256', secret).update(`${unixSeconds}.${body}`).digest('hex')}`,
  );
  return [`t=${unixSeconds}`, ...signatures].join(',');
}
