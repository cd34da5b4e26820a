// Parses one SSH public key in OpenSSH format (RFC 4253, 5656, 8709) and explains in plain words why a key is refused.
import { createHash, createPublicKey } from 'node:crypto';

export interface PublicKey {
  /** Type and base64, without the comment. */
  line: string;
  /** `SHA256:` and the unpadded base64 digest, as printed by `ssh-keygen -l`. */
  fingerprint: string;
}

export type PublicKeyAnswer = { ok: true; key: PublicKey } | { ok: false; rule: string };

const ED25519_BYTES = 32;
const RSA_BITS_MIN = 2048;
/** The largest key that OpenSSH creates. */
const RSA_BITS_MAX = 16_384;
/** SSH curve name -> its JWK name and the size of one coordinate in bytes. */
const CURVES: Record<string, { crv: string; bytes: number }> = {
  nistp256: { crv: 'P-256', bytes: 32 },
  nistp384: { crv: 'P-384', bytes: 48 },
  nistp521: { crv: 'P-521', bytes: 66 },
};
const ACCEPTED = /^(ssh-ed25519|ecdsa-sha2-nistp(256|384|521)|ssh-rsa)$/;
const WANTED = 'an OpenSSH public key like "ssh-ed25519 AAAA... you@host"';

/** Reads the line of a `.pub` file. */
export function readPublicKey(text: string): PublicKeyAnswer {
  const line = text.trim();
  const [type = '', base64 = ''] = line.split(/[ \t]+/);
  const rule = brokenText(line) ?? brokenType(line, type) ?? brokenBlob(type, base64);
  if (rule !== undefined) return { ok: false, rule };
  const digest = createHash('sha256').update(Buffer.from(base64, 'base64')).digest('base64').replace(/=+$/, '');
  return { ok: true, key: { line: `${type} ${base64}`, fingerprint: `SHA256:${digest}` } };
}

function brokenText(line: string): string | undefined {
  if (/PRIVATE KEY/.test(line)) {
    return 'is a private key. Never send one anywhere: make a new key pair and register the content of its .pub file';
  }
  if (line.startsWith('---- BEGIN SSH2')) return 'is in RFC 4716 format; convert it with "ssh-keygen -i -f <file>"';
  if (line.startsWith('-----BEGIN')) return 'is in PEM format; convert it with "ssh-keygen -i -m PKCS8 -f <file>"';
  if (/[\r\n]/.test(line)) return 'must be one key on one line';
  return undefined;
}

function brokenType(line: string, type: string): string | undefined {
  if (ACCEPTED.test(type)) return undefined;
  if (type.includes('-cert-v01@')) return 'is a certificate; register the public key that it certifies';
  if (type.startsWith('sk-')) return 'is a key of a hardware token (sk-), which is not supported; use an ed25519 key';
  if (type === 'ssh-dss') return 'is a DSA key, which OpenSSH itself no longer accepts; use an ed25519 key';
  if (line.split(/[ \t]+/).some((word) => ACCEPTED.test(word))) {
    return 'has options before the key type, which are not supported; send only the type and the key';
  }
  return `must be ${WANTED}`;
}

function brokenBlob(type: string, base64: string): string | undefined {
  const blob = Buffer.from(base64, 'base64');
  if (base64 === '' || blob.toString('base64') !== base64) return `must be ${WANTED}: the second word is not base64`;
  const fields = readFields(blob);
  if (fields === undefined) return 'is cut off or damaged: the key does not have the length that it says';
  const [innerType, ...values] = fields;
  if (innerType?.toString('latin1') !== type) return `is damaged: it says ${type} but holds another kind of key`;
  if (type === 'ssh-ed25519') return brokenEd25519(values);
  return type === 'ssh-rsa' ? brokenRsa(values) : brokenEcdsa(type, values);
}

function brokenEd25519(values: Buffer[]): string | undefined {
  const isWhole = values.length === 1 && values[0]?.length === ED25519_BYTES;
  return isWhole ? undefined : `is damaged: an ed25519 key has ${ED25519_BYTES} bytes`;
}

function brokenRsa(values: Buffer[]): string | undefined {
  const [exponent, modulus] = values;
  if (values.length !== 2 || exponent === undefined || modulus === undefined)
    return 'is damaged: an RSA key has two numbers';
  const bits = bitLength(modulus);
  if (bits < RSA_BITS_MIN || bits > RSA_BITS_MAX) {
    return `is an RSA key of ${bits} bits; from ${RSA_BITS_MIN} to ${RSA_BITS_MAX} are accepted`;
  }
  const isUsable = isOdd(modulus) && isOdd(exponent) && bitLength(exponent) > 1;
  return isUsable ? undefined : 'is damaged: these numbers are no RSA key';
}

function brokenEcdsa(type: string, values: Buffer[]): string | undefined {
  const name = type.slice('ecdsa-sha2-'.length);
  const curve = CURVES[name];
  const [inner, point] = values;
  const isPlausible = inner?.toString('latin1') === name && values.length === 2 && point?.[0] === 4;
  if (curve === undefined || point === undefined || !isPlausible || point.length !== 1 + 2 * curve.bytes) {
    return `is damaged: it holds no point of ${name}`;
  }
  const coordinate = (from: number): string => point.subarray(from, from + curve.bytes).toString('base64url');
  try {
    createPublicKey({
      key: { kty: 'EC', crv: curve.crv, x: coordinate(1), y: coordinate(1 + curve.bytes) },
      format: 'jwk',
    });
    return undefined;
  } catch {
    return `is damaged: the point is not on ${name}`;
  }
}

/** The length-prefixed fields of the blob; undefined if they do not fill it exactly. */
function readFields(blob: Buffer): Buffer[] | undefined {
  const fields: Buffer[] = [];
  let at = 0;
  while (at < blob.length) {
    if (blob.length - at < 4) return undefined;
    const end = at + 4 + blob.readUInt32BE(at);
    if (end > blob.length) return undefined;
    fields.push(blob.subarray(at + 4, end));
    at = end;
  }
  return fields;
}

/** The bit length of a positive multiple-precision integer; 0 for a negative or empty one. */
function bitLength(value: Buffer): number {
  if ((value[0] ?? 0x80) >= 0x80) return 0;
  const first = value.findIndex((byte) => byte !== 0);
  return first === -1 ? 0 : (value.length - first - 1) * 8 + (32 - Math.clz32(value[first] ?? 0));
}

function isOdd(value: Buffer): boolean {
  return ((value.at(-1) ?? 0) & 1) === 1;
}
