// An authenticator in software: makes real WebAuthn registrations and assertions (ES256), so that their verification is real too.
import { createHash, createSign, generateKeyPairSync, type KeyObject } from 'node:crypto';

export interface AuthenticatorOptions {
  origin: string;
  rpId: string;
}

export interface Authenticator {
  /** The answer to `navigator.credentials.create`. `change` plants a fault. */
  create(challenge: string, change?: Partial<Fault>): object;
  /** The answer to `navigator.credentials.get`. */
  get(challenge: string, change?: Partial<Fault>): object;
}

interface Fault {
  origin: string;
  /** The counter goes on after it. */
  counter: number;
  isVerified: boolean;
}

const USER_PRESENT = 0x01;
const USER_VERIFIED = 0x04;
const ATTESTED = 0x40;

export function openAuthenticator({ origin, rpId }: AuthenticatorOptions): Authenticator {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const id = createHash('sha256')
    .update(publicKey.export({ type: 'spki', format: 'der' }))
    .digest();
  let counter = 0;
  const clientData = (type: string, challenge: string, from: string): Buffer =>
    Buffer.from(JSON.stringify({ type, challenge, origin: from, crossOrigin: false }));
  const authData = ({ isVerified = true, counter: planted }: Partial<Fault>, attested: Buffer): Buffer => {
    counter = planted ?? counter + 1;
    const flags = USER_PRESENT | (isVerified ? USER_VERIFIED : 0) | (attested.length > 0 ? ATTESTED : 0);
    const fixed = Buffer.alloc(5);
    fixed.writeUInt8(flags, 0);
    fixed.writeUInt32BE(counter, 1);
    return Buffer.concat([createHash('sha256').update(rpId).digest(), fixed, attested]);
  };
  const named = { id: id.toString('base64url'), rawId: id.toString('base64url'), type: 'public-key' };
  return {
    create: (challenge, change = {}) => {
      const length = Buffer.alloc(2);
      length.writeUInt16BE(id.length);
      const attested = Buffer.concat([Buffer.alloc(16), length, id, coseKey(publicKey)]);
      const attestation = cbor(
        new Map<string, unknown>([
          ['fmt', 'none'],
          ['attStmt', new Map()],
          ['authData', authData(change, attested)],
        ]),
      );
      const client = clientData('webauthn.create', challenge, change.origin ?? origin);
      const response = {
        clientDataJSON: client.toString('base64url'),
        attestationObject: attestation.toString('base64url'),
        transports: ['internal'],
      };
      return { ...named, clientExtensionResults: {}, response };
    },
    get: (challenge, change = {}) => {
      const client = clientData('webauthn.get', challenge, change.origin ?? origin);
      const data = authData(change, Buffer.alloc(0));
      const signed = Buffer.concat([data, createHash('sha256').update(client).digest()]);
      const response = {
        clientDataJSON: client.toString('base64url'),
        authenticatorData: data.toString('base64url'),
        signature: createSign('sha256').update(signed).sign(privateKey).toString('base64url'),
      };
      return { ...named, clientExtensionResults: {}, response };
    },
  };
}

/** The public key as COSE (RFC 9053): kty EC2, alg ES256, curve P-256, x and y. */
function coseKey(publicKey: KeyObject): Buffer {
  const { x = '', y = '' } = publicKey.export({ format: 'jwk' });
  const coordinate = (text: string): Buffer => Buffer.from(text, 'base64url');
  return cbor(
    new Map<number, unknown>([
      [1, 2],
      [3, -7],
      [-1, 1],
      [-2, coordinate(x)],
      [-3, coordinate(y)],
    ]),
  );
}

/** The few kinds of values that WebAuthn needs (RFC 8949). */
function cbor(value: unknown): Buffer {
  if (typeof value === 'number') return value >= 0 ? head(0, value) : head(1, -1 - value);
  if (Buffer.isBuffer(value)) return Buffer.concat([head(2, value.length), value]);
  if (typeof value === 'string') return Buffer.concat([head(3, Buffer.byteLength(value)), Buffer.from(value)]);
  if (value instanceof Map) {
    return Buffer.concat([head(5, value.size), ...[...value].flat().map(cbor)]);
  }
  throw new Error(`no CBOR for ${typeof value}`);
}

function head(kind: number, length: number): Buffer {
  if (length < 24) return Buffer.from([(kind << 5) | length]);
  if (length < 256) return Buffer.from([(kind << 5) | 24, length]);
  return Buffer.from([(kind << 5) | 25, length >> 8, length & 255]);
}
