// Parsing SSH public keys: keys of OpenSSH are accepted, everything else is refused with the reason.
import { describe, expect, test } from 'vitest';
import { readPublicKey } from '../../../../control-plane/base/accounts/public-key.ts';
import { KEYS } from './ssh-key-samples.ts';

describe('an accepted key has the fingerprint that ssh-keygen prints:', () => {
  // Specification 4.2: public_key has the OpenSSH public-key format.
  test.each(['ed', 'ec256', 'ec384', 'ec521', 'rsa2048'] as const)('%s', (name) => {
    const { line, fingerprint } = KEYS[name];
    const bare = line.split(' ').slice(0, 2).join(' ');
    expect(readPublicKey(line)).toEqual({ ok: true, key: { line: bare, fingerprint } });
    expect(readPublicKey(`  ${bare}\r\n`)).toEqual({ ok: true, key: { line: bare, fingerprint } });
  });
});

const [, edBase64 = ''] = KEYS.ed.line.split(' ');
const [, ecBase64 = ''] = KEYS.ec256.line.split(' ');
const field = (...parts: (string | Buffer)[]): string =>
  Buffer.concat(
    parts.map((part) => {
      const bytes = Buffer.from(part);
      const length = Buffer.alloc(4);
      length.writeUInt32BE(bytes.length);
      return Buffer.concat([length, bytes]);
    }),
  ).toString('base64');
const flipLastByte = (base64: string): string => {
  const bytes = Buffer.from(base64, 'base64');
  bytes.writeUInt8((bytes.at(-1) ?? 0) ^ 1, bytes.length - 1);
  return bytes.toString('base64');
};
const modulus = (bits: number): Buffer => {
  const bytes = Buffer.alloc(Math.ceil(bits / 8), 0xff);
  bytes[0] = 0xff >> (bytes.length * 8 - bits);
  return Buffer.concat([Buffer.from([0]), bytes]);
};
const rsa = (bits: number, exponent: number[] = [1, 0, 1]): string =>
  `ssh-rsa ${field('ssh-rsa', Buffer.from(exponent), modulus(bits))}`;

describe('the limits of RSA', () => {
  test.each([2048, 16_384])('%d bits are accepted', (bits) => {
    expect(readPublicKey(rsa(bits)).ok).toBe(true);
  });
  test.each([1024, 2047, 16_385])('%d bits are refused', (bits) => {
    expect(readPublicKey(rsa(bits))).toEqual({ ok: false, rule: expect.stringContaining(`${bits} bits`) });
  });
  test('a key of 2047 bits from ssh-keygen is refused', () => {
    expect(readPublicKey(KEYS.rsa2047.line)).toEqual({ ok: false, rule: expect.stringContaining('2047 bits') });
  });
});

describe('a key is refused:', () => {
  test.each([
    [
      'a private key',
      '-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----',
      'private key',
    ],
    ['PEM', '-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----', 'ssh-keygen -i -m PKCS8'],
    ['RFC 4716', '---- BEGIN SSH2 PUBLIC KEY ----\nAAAA\n---- END SSH2 PUBLIC KEY ----', 'ssh-keygen -i'],
    ['two lines', `${KEYS.ed.line}\n${KEYS.ec256.line}`, 'one line'],
    ['a certificate', `ssh-ed25519-cert-v01@openssh.com ${edBase64}`, 'certificate'],
    ['a hardware key', `sk-ssh-ed25519@openssh.com ${edBase64}`, 'hardware token'],
    ['DSA', `ssh-dss ${edBase64}`, 'DSA'],
    ['options', `command="ls" ${KEYS.ed.line}`, 'options'],
    ['an unknown type', `ssh-ed448 ${edBase64}`, 'OpenSSH public key'],
    ['a word', 'hello', 'OpenSSH public key'],
    ['nothing', ' ', 'OpenSSH public key'],
    ['no key after the type', 'ssh-ed25519', 'not base64'],
    ['no base64', 'ssh-ed25519 AAA*', 'not base64'],
    ['base64 with stray bits', `ssh-ed25519 ${edBase64.slice(0, -1)}`, 'not base64'],
    ['a cut off key', `ssh-ed25519 ${edBase64.slice(0, -4)}`, 'cut off'],
    ['another kind inside', `ssh-rsa ${edBase64}`, 'another kind'],
    ['a short ed25519 key', `ssh-ed25519 ${field('ssh-ed25519', Buffer.alloc(31))}`, '32 bytes'],
    ['something after the key', `ssh-ed25519 ${field('ssh-ed25519', Buffer.alloc(32), 'x')}`, '32 bytes'],
    ['a point off the curve', `ecdsa-sha2-nistp256 ${flipLastByte(ecBase64)}`, 'not on nistp256'],
    [
      'another curve inside',
      `ecdsa-sha2-nistp256 ${field('ecdsa-sha2-nistp256', 'nistp384', Buffer.alloc(97, 4))}`,
      'no point',
    ],
    ['an RSA exponent of 1', rsa(2048, [1]), 'no RSA key'],
    ['an even RSA exponent', rsa(2048, [2]), 'no RSA key'],
    ['a negative RSA modulus', `ssh-rsa ${field('ssh-rsa', Buffer.from([3]), Buffer.alloc(256, 0xff))}`, '0 bits'],
    ['an RSA key of one number', `ssh-rsa ${field('ssh-rsa', Buffer.from([3]))}`, 'two numbers'],
  ])('%s', (_what, text, reason) => {
    expect(readPublicKey(text)).toEqual({ ok: false, rule: expect.stringContaining(reason) });
  });
});
