// What a new passkey may say of itself: certificates of a stranger name addresses that a library would ask, so they are refused.
import { execFileSync } from 'node:child_process';
import { createHash, createPublicKey, createSign, generateKeyPairSync, type KeyObject, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Answer, type Api, openApi } from '../../../contract/api.ts';
import { openAuthenticator } from '../../../kit/authenticator.ts';
import { addPerson, ORIGIN, type Person } from '../../../kit/people.ts';
import { requireProgram } from '../../../kit/setup.ts';

let api: Api;
let ada: Person;
let dir: string;
let inner: Server;
let asked: string[];
beforeEach(async () => {
  api = await openApi();
  ada = await addPerson(api.world, undefined);
  dir = mkdtempSync(join(tmpdir(), 'attestation-'));
  asked = [];
  inner = createServer((request, response) => {
    asked.push(request.url ?? '');
    response.end();
  }).listen(0, '127.0.0.1');
  await once(inner, 'listening');
});
afterEach(async () => {
  inner.closeAllConnections();
  inner.close();
  rmSync(dir, { recursive: true });
  await api.close();
});

interface Created {
  id: string;
  response: { clientDataJSON: string; attestationObject: string; transports: unknown };
}

async function created(): Promise<Created> {
  const { json } = await api.call('POST', '/v1/auth/passkeys/registration', { as: ada });
  return openAuthenticator({ origin: ORIGIN, rpId: 'api.example.com' }).create(String(json['challenge'])) as Created;
}

/** The same passkey with a statement about its authenticator. */
function stated(passkey: Created, format: string, statement: Buffer, authData = authDataOf(passkey)): Created {
  const object = Buffer.concat([cbor.map(3), cbor.text('fmt'), cbor.text(format), cbor.text('attStmt'), statement]);
  const attestationObject = Buffer.concat([object, cbor.text('authData'), cbor.bytes(authData)]);
  return { ...passkey, response: { ...passkey.response, attestationObject: attestationObject.toString('base64url') } };
}
const signed = (signature: Buffer): Buffer[] => [
  cbor.text('alg'),
  cbor.minusSeven,
  cbor.text('sig'),
  cbor.bytes(signature),
];
const add = (passkey: Created): Promise<Answer> =>
  api.call('POST', '/v1/auth/passkeys', { as: ada, body: { name: 'x', passkey } });

test('a passkey whose certificates name an address is refused, and the address is not asked', async () => {
  const passkey = await created();
  const address = `http://127.0.0.1:${(inner.address() as AddressInfo).port}/secrets`;
  // What an Android telephone says of its key, in DER: versions, the hash that it has signed, and three empty fields.
  const description = `30340201020a01000201020a01000420${clientHashOf(passkey).toString('hex')}040030003000`;
  const extensions = [`crlDistributionPoints=URI:${address}`, `1.3.6.1.4.1.11129.2.1.17=DER:${description}`];
  const chain = chainOf(publicKeyOf(passkey), { subject: '/CN=leaf', extensions });
  const all = [cbor.map(3), ...signed(Buffer.alloc(8)), cbor.text('x5c'), cbor.list(2), ...chain];
  const answer = await add(stated(passkey, 'android-key', Buffer.concat(all)));
  expect(asked).toEqual([]);
  expect(answer).toMatchObject({ status: 422, json: { errors: [{ field: 'passkey' }] } });
});

test('certificates are refused in every format, though everything in them is right', async () => {
  const passkey = await created();
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const subject = '/C=DE/O=Acme/OU=Authenticator Attestation/CN=leaf';
  const [leaf = Buffer.alloc(0)] = chainOf(publicKey, { subject, extensions: ['basicConstraints=CA:FALSE'] });
  const signature = createSign('sha256').update(authDataOf(passkey)).update(clientHashOf(passkey)).sign(privateKey);
  const all = [cbor.map(3), ...signed(signature), cbor.text('x5c'), cbor.list(1), leaf];
  expect((await add(stated(passkey, 'packed', Buffer.concat(all)))).status).toBe(422);
});

test('a passkey that has signed itself, as some browsers send it, is accepted', async () => {
  const passkey = await created();
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const { x = '', y = '' } = publicKey.export({ format: 'jwk' });
  const authData = Buffer.from(authDataOf(passkey));
  authData.set(Buffer.from(x, 'base64url'), authData.length - 67);
  authData.set(Buffer.from(y, 'base64url'), authData.length - 32);
  const signature = createSign('sha256').update(authData).update(clientHashOf(passkey)).sign(privateKey);
  const statement = Buffer.concat([cbor.map(2), ...signed(signature)]);
  expect((await add(stated(passkey, 'packed', statement, authData))).status).toBe(201);
});

test('an id that is longer than any authenticator makes, and transports that are no list, are refused', async () => {
  const passkey = await created();
  const authData = authDataOf(passkey);
  const [before, key] = [authData.subarray(0, 53), authData.subarray(-77)];
  const longer = (bytes: number): Buffer =>
    Buffer.concat([before, Buffer.from([bytes >> 8, bytes & 255]), randomBytes(bytes), key]);
  expect((await add(stated(passkey, 'none', cbor.map(0), longer(1_024)))).status).toBe(422);
  const { response } = passkey;
  expect((await add({ ...passkey, response: { ...response, transports: 'usb' } })).status).toBe(422);
  expect((await add(stated(passkey, 'none', cbor.map(0), longer(1_023)))).status).toBe(201);
});

/** A certificate for the key, and that of its issuer, as CBOR. */
function chainOf(key: KeyObject, { subject, extensions }: { subject: string; extensions: string[] }): Buffer[] {
  const file = (name: string): string => join(dir, name);
  const openssl = (...args: string[]): void =>
    void execFileSync(requireProgram('openssl'), args, { cwd: dir, stdio: 'pipe' });
  writeFileSync(file('key'), key.export({ type: 'spki', format: 'pem' }));
  writeFileSync(file('extensions'), extensions.join('\n'));
  const root = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', 'root.key'];
  openssl('req', '-x509', ...root, '-out', 'root', '-outform', 'DER', '-subj', '/CN=root', '-days', '1');
  const by = ['-CA', 'root', '-CAform', 'DER', '-CAkey', 'root.key', '-extfile', 'extensions', '-days', '1'];
  openssl('x509', '-new', '-force_pubkey', 'key', '-subj', subject, ...by, '-out', 'leaf', '-outform', 'DER');
  return ['leaf', 'root'].map((name) => cbor.bytes(readFileSync(file(name))));
}

/** What an authenticator signs of the page that asks it. */
function clientHashOf({ response: { clientDataJSON } }: Created): Buffer {
  return createHash('sha256').update(Buffer.from(clientDataJSON, 'base64url')).digest();
}

/** The authenticator writes it last. */
function authDataOf({ response: { attestationObject } }: Created): Buffer {
  const object = Buffer.from(attestationObject, 'base64url');
  return object.subarray(object.indexOf('authData') + 'authData'.length + 2);
}

/** The key ends with both coordinates of 32 bytes, each behind three bytes of CBOR. */
function publicKeyOf(passkey: Created): KeyObject {
  const data = authDataOf(passkey);
  const [x, y] = [data.subarray(-67, -35).toString('base64url'), data.subarray(-32).toString('base64url')];
  return createPublicKey({ key: { kty: 'EC', crv: 'P-256', x, y }, format: 'jwk' });
}

/** The few kinds of CBOR that a statement has. */
const cbor = {
  map: (size: number): Buffer => Buffer.from([0xa0 | size]),
  list: (size: number): Buffer => Buffer.from([0x80 | size]),
  text: (text: string): Buffer => Buffer.from([0x60 | text.length, ...Buffer.from(text)]),
  bytes: (bytes: Buffer): Buffer => Buffer.concat([Buffer.from(lengthOf(bytes)), bytes]),
  minusSeven: Buffer.from([0x26]),
};

function lengthOf({ length }: Buffer): number[] {
  if (length < 24) return [0x40 | length];
  return length < 256 ? [0x58, length] : [0x59, length >> 8, length & 255];
}
