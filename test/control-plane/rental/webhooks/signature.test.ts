// The signature: the published vector, two secrets, and a receiver that knows only the specification.
import { createHmac, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { runInNewContext } from 'node:vm';
import { describe, expect, test } from 'vitest';
import { signatureHeader } from '../../../../shared/webhook-signature.ts';
import { webhookRoutes } from '../../../../control-plane/rental/webhooks/routes.ts';
import { verify } from '../../../kit/webhook-receiver.ts';

const SECRET = '0123456789abcdef'.repeat(4);
const OLD = 'fedcba9876543210'.repeat(4);
const BODY = '{"id":"evt_1"}';
const TIME = 1_767_225_600;
const VECTOR = 't=1767225600,v1=4c19823ff36fbe91381643fe7bccab85e74bc5fcc5e61a4a99b7b001b1ae6faa';

/** The receiver that the manual shows, with one line behind it that tells what it found. */
const MANUAL = readFileSync(new URL('../../../../control-plane/docs/customer.md', import.meta.url), 'utf8');
const SHOWN = `${/```js\n([^]*?)```/.exec(MANUAL)?.[1]}\ngenuine && fresh ? 204 : 400;`;

function verifyAsShown(secret: string, { headers, body }: ReturnType<typeof received>, nowSeconds: number): unknown {
  const Date = { now: () => nowSeconds * 1000 };
  const request = { headers };
  return runInNewContext(SHOWN, { request, secret, rawBody: body, createHmac, timingSafeEqual, Buffer, Date });
}

const received = (signature: string, body = BODY) => ({
  headers: { 'svc-signature': signature, 'svc-event-id': 'evt_1', 'content-type': 'application/json' },
  body: Buffer.from(body),
});

// Specification 6.3: t=<unix_seconds>,v1=<hex>: HMAC-SHA256 over <t>.<raw body>.
test('the published test vector is correct, and the API document contains it', () => {
  expect(signatureHeader(BODY, [SECRET], TIME)).toBe(VECTOR);
  const [create] = webhookRoutes({} as Parameters<typeof webhookRoutes>[0]);
  for (const part of [SECRET, BODY, String(TIME), VECTOR.split('v1=')[1] ?? '']) {
    expect(create?.description).toContain(part);
  }
});

test('during a rotation both secrets sign, the new one first', () => {
  const header = signatureHeader(BODY, [SECRET, OLD], TIME);
  expect(header.startsWith(VECTOR)).toBe(true);
  expect(header).toMatch(/^t=\d+,v1=[0-9a-f]{64},v1=[0-9a-f]{64}$/);
  expect([SECRET, OLD].map((secret) => verify(secret, received(header), TIME))).toEqual([204, 204]);
});

describe.each([
  ['that knows only the specification', verify],
  ['of the manual', verifyAsShown],
])('a receiver %s', (_which, verifies) => {
  // Specification 6.3: A timestamp more than 300 seconds away is stale and answered 400.
  // Specification 8: Signature freshness: 5 minutes.
  test('accepts a signed request up to 300 seconds away in either direction', () => {
    for (const [seconds, answer] of [
      [0, 204],
      [300, 204],
      [-300, 204],
      [301, 400],
      [-301, 400],
    ] as const) {
      expect(verifies(SECRET, received(VECTOR), TIME + seconds)).toBe(answer);
    }
  });
  // Specification 6.3: A mismatch is answered 400.
  test('answers 400 to another body, another secret, another time and no signature', () => {
    expect(verifies(SECRET, received(VECTOR, `${BODY} `), TIME)).toBe(400);
    expect(verifies(OLD, received(VECTOR), TIME)).toBe(400);
    expect(verifies(SECRET, received(VECTOR.replace('600', '601')), TIME)).toBe(400);
    expect(verifies(SECRET, received(VECTOR.replace(/.$/, '0')), TIME)).toBe(400);
    expect(verifies(SECRET, received(''), TIME)).toBe(400);
  });
  // Specification 6.3: A rotation of the secret leaves no gap.
  test('accepts either signature of a rotation', () => {
    const rotated = received(signatureHeader(BODY, [SECRET, OLD], TIME));
    expect([SECRET, OLD].map((secret) => verifies(secret, rotated, TIME))).toEqual([204, 204]);
  });
});
