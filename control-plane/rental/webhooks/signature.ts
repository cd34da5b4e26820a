// The header that proves who sent a delivery (specification 6.3).
import { createHmac } from 'node:crypto';

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
