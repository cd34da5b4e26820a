// The check of a webhook's signature in the browser, against the service's own signatures.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { checkSignature } from '../../../control-plane/console/web/money/signature.ts';
import { signatureHeader } from '../../../shared/webhook-signature.ts';

const SECRET = '0123456789abcdef'.repeat(4);
const OTHER = 'fedcba9876543210'.repeat(4);
const BODY = '{"type":"instance.running","name":"Zoë"}';
const NOW_S = 1_795_000_000;
const NOW_MS = NOW_S * 1_000;
const HEADER = signatureHeader(BODY, [SECRET], NOW_S);
const signed = { body: BODY, header: HEADER, secret: SECRET };

const hex = fc
  .array(fc.nat(15), { minLength: 64, maxLength: 64 })
  .map((all) => all.map((digit) => digit.toString(16)).join(''));

test('what the service signs is right, whatever the body', async () => {
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: 'binary' }), hex, hex, async (body, secret, before) => {
      const header = signatureHeader(body, [secret, before], NOW_S);
      for (const each of [secret, before]) {
        expect(await checkSignature({ body, header, secret: each }, NOW_MS)).toMatchObject({ isValid: true });
      }
    }),
  );
});

test('a body, a secret or a time that was changed by one character is wrong', async () => {
  const changed = (text: string, at: number, to: string): string => text.slice(0, at) + to + text.slice(at + 1);
  await fc.assert(
    fc.asyncProperty(fc.nat(BODY.length - 1), fc.nat(63), async (atBody, atSecret) => {
      const other = (text: string, at: number): string => changed(text, at, text[at] === '1' ? '2' : '1');
      const [body, secret] = [other(BODY, atBody), other(SECRET, atSecret)];
      expect(await checkSignature({ ...signed, body }, NOW_MS)).toMatchObject({ isValid: false });
      expect(await checkSignature({ ...signed, secret }, NOW_MS)).toMatchObject({ isValid: false });
    }),
  );
  const header = HEADER.replace(`t=${NOW_S}`, `t=${NOW_S + 1}`);
  expect(await checkSignature({ ...signed, header }, NOW_MS)).toMatchObject({ isValid: false });
});

describe('the header', () => {
  test.each([
    ['with its name', `Svc-Signature: ${HEADER}`],
    ['in the small letters of HTTP/2', `svc-signature:${HEADER}`],
    ['with spaces', ` ${HEADER.replace(',', ' , ')}\n`],
    ['with another signature before its own', HEADER.replace(',', `,v1=${'0'.repeat(64)},`)],
  ])('is read %s', async (_how, header) => {
    expect(await checkSignature({ ...signed, header }, NOW_MS)).toMatchObject({ isValid: true });
  });

  test.each([
    ['', 'has no t='],
    ['t=soon,v1=00', 'has no t='],
    [`t=${NOW_S}`, 'has no v1='],
    [`t=${NOW_S},v2=00`, 'has no v1='],
    [`t=${NOW_S},v1=`, 'which the header does not have'],
  ])('%o is refused in words', async (header, words) => {
    const { isValid, text } = await checkSignature({ ...signed, header }, NOW_MS);
    expect([isValid, text]).toEqual([false, expect.stringContaining(words)]);
  });
});

test('a wrong body is answered with the signature that it would have', async () => {
  const body = `${BODY} `;
  const right = signatureHeader(body, [SECRET], NOW_S).split('v1=')[1];
  expect((await checkSignature({ ...signed, body }, NOW_MS)).text).toContain(`v1=${right},`);
});

test.each(['', SECRET.slice(1), `${SECRET}0`, SECRET.toUpperCase(), `whsec_${SECRET.slice(6)}`])(
  'a secret that is not 64 hexadecimal characters is named as such: %o',
  async (secret) => {
    expect(await checkSignature({ ...signed, secret }, NOW_MS)).toMatchObject({
      isValid: false,
      text: expect.stringContaining('must be 64 characters'),
    });
  },
);

test('spaces around a copied secret do not count, and the secret of another endpoint is wrong', async () => {
  expect(await checkSignature({ ...signed, secret: ` ${SECRET}\n` }, NOW_MS)).toMatchObject({ isValid: true });
  expect(await checkSignature({ ...signed, secret: OTHER }, NOW_MS)).toMatchObject({ isValid: false });
});

test.each([
  [0, 'its time is 0 s away'],
  [300, 'its time is 300 s away'],
  [-300, 'its time is 300 s away'],
  [301, 'It is 301 s old: a receiver refuses more than 300 s'],
  [-301, 'It is 301 s ahead: a receiver refuses more than 300 s'],
])('a right signature from %i s ago says so', async (ageS, words) => {
  const { isValid, text } = await checkSignature(signed, NOW_MS + ageS * 1_000);
  expect([isValid, text]).toEqual([true, expect.stringContaining(words)]);
});
