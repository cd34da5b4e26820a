// Certificates from files: renewed ones are served, those that nobody could use change nothing, and what is wrong is logged once.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { connect, createServer, type Server } from 'node:tls';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { pino } from 'pino';
import { openTls, type Tls, type TlsFiles } from '../../../../control-plane/base/http/tls.ts';
import { makeAuthority } from '../../../kit/certificate.ts';
import { type VirtualClock, virtualClock } from '../../../kit/virtual-clock.ts';
import { certificateMeasure } from '../../../../control-plane/listeners.ts';
import { openBench } from './fixture.ts';

const authority = makeAuthority();
const NAMES = ['IP:127.0.0.1', 'DNS:api.example.com'];
const HOSTS = ['api.example.com'];
const DAY_MS = 86_400_000;
/** A certificate is not valid before the second after it was made. */
const HOUR_MS = 3_600_000;

let dir: string;
let files: TlsFiles;
let lines: string[];
let server: Server;
let clock: VirtualClock;
const log = pino(
  new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      lines.push(chunk.toString());
      done();
    },
  }),
);
const write = (name: keyof TlsFiles, pem: string): void => writeFileSync(files[name], pem);

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'tls-'));
  files = { certificate_file: join(dir, 'cert.pem'), key_file: join(dir, 'key.pem') };
  lines = [];
  clock = virtualClock(Date.now() + HOUR_MS);
  renew(NAMES);
});
/** A new pair of files. It is valid for a day from now, or was until a day ago. */
function renew(names: readonly string[], days = 1): void {
  const { cert, key } = authority.issue(names, days);
  write('certificate_file', cert);
  write('key_file', key);
}

const open = (setting = 'tls', hosts = HOSTS): Tls => openTls({ setting, hosts }, files, { clock, log });

afterEach(() => rmSync(dir, { recursive: true }));

async function serial(): Promise<string> {
  const { port } = server.address() as AddressInfo;
  const socket = connect({ port, host: '127.0.0.1', ca: authority.cert });
  await once(socket, 'secureConnect');
  const { serialNumber } = socket.getPeerCertificate();
  socket.destroy();
  return serialNumber;
}

test('a renewed pair is served to new connections; half a pair is logged once, and the old pair stays', async () => {
  const tls = open('apps.tls');
  server = createServer(tls.options(), (socket) => socket.on('error', () => undefined));
  tls.serve(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const first = await serial();
  tls.refresh();
  expect(await serial()).toBe(first);
  expect(lines).toEqual([]);

  const renewed = authority.issue(NAMES);
  write('certificate_file', renewed.cert);
  tls.refresh();
  tls.refresh();
  expect(await serial()).toBe(first);
  expect(lines).toHaveLength(1);
  expect(lines[0]).toContain('the old certificate is served');

  write('key_file', renewed.key);
  tls.refresh();
  expect(await serial()).not.toBe(first);

  rmSync(files.key_file);
  tls.refresh();
  expect(await serial()).not.toBe(first);
  expect(lines.at(-1)).toMatch(/apps\.tls\.(certificate|key)_file names .*, which does not exist/);
  server.close();
});

test.each([
  ['TLS and no ports of others', { isOnlyTls: true }, true, 'max-age=31536000'],
  ['TLS and ports of instances', { isOnlyTls: false }, true, undefined],
  ['plain HTTP', { isOnlyTls: true }, false, undefined],
])('at a host name with %s, browsers learn whether TLS is a must', async (_, given, hasTls, expected) => {
  const tls = hasTls ? { tls: open() } : {};
  const bench = await openBench({ http: { ...given, ...tls } });
  for (const url of ['/v1/openapi.json', '/nowhere', '/v1/things']) {
    const { headers } = await bench.http.inject({ method: 'GET', url });
    expect(headers['strict-transport-security']).toBe(expected);
  }
  await bench.close();
});

test.each([
  [
    'a key of another certificate',
    (): void => write('key_file', authority.issue(NAMES).key),
    /^apps\.tls\.key_file names .*key\.pem, which is not the key of the certificate in .*cert\.pem \(apps\.tls\.certificate_file\)/,
  ],
  [
    'no certificate',
    (): void => write('certificate_file', 'x'),
    /^apps\.tls\.certificate_file names .*cert\.pem, which is not a certificate: it must be PEM/,
  ],
  [
    'no key',
    (): void => write('key_file', 'x'),
    /^apps\.tls\.key_file names .*key\.pem, which is not a private key: it must be PEM/,
  ],
  ['no file', (): void => rmSync(files.key_file), /^apps\.tls\.key_file names .*key\.pem, which does not exist/],
])('%s at the start is an error that names the setting and the file', (_, spoil, message) => {
  spoil();
  expect(() => open('apps.tls')).toThrow(message);
});

const logged = (): unknown[] =>
  lines.map((line) => JSON.parse(line) as Record<string, unknown>).map(({ level, msg }) => [level, msg]);

test('a certificate that is expired, or for another host, is served with one warning', async () => {
  const tls = open();
  tls.refresh();
  expect(lines).toEqual([]);
  await clock.advance(2 * DAY_MS);
  tls.refresh();
  tls.refresh();
  expect(logged()).toEqual([
    [40, expect.stringMatching(/^the certificate of tls has been expired since 2.*Z: clients refuse it$/)],
  ]);
  lines = [];
  clock = virtualClock(Date.now() - 2 * DAY_MS);
  open().refresh();
  expect(logged()).toEqual([[40, expect.stringContaining('is not valid before 2')]]);
  lines = [];
  clock = virtualClock(Date.now() + HOUR_MS);
  open('tls', ['api.example.com', '127.0.0.1', 'other.example.com', '127.0.0.2']).refresh();
  expect(logged()).toEqual([
    [
      40,
      expect.stringContaining(
        'is not valid for other.example.com and 127.0.0.2 (it names IP Address:127.0.0.1, DNS:api',
      ),
    ],
  ]);
});

test('a renewal for another host is refused while the old certificate is valid, and taken when that is expired', async () => {
  const tls = open();
  const before = tls.options();
  renew(['DNS:shop.example.com']);
  tls.refresh();
  tls.refresh();
  expect(tls.options()).toBe(before);
  expect(logged()).toEqual([[50, 'the new certificate files cannot be used; the old certificate is served']]);
  expect(lines[0]).toContain('is not valid for api.example.com (it names DNS:shop.example.com)');
  await clock.advance(2 * DAY_MS);
  tls.refresh();
  expect(tls.options()).not.toBe(before);
});

test('a renewal that is expired is refused, also if a proxy in front ends TLS for the host', () => {
  renew(['DNS:inside.example.com']);
  const tls = open();
  const before = tls.options();
  const validMs = tls.expiresMs();
  renew(['DNS:inside.example.com'], -1);
  tls.refresh();
  expect(tls.options()).toBe(before);
  expect(lines.join('')).toContain('has been expired since 2');
  expect(tls.expiresMs()).toBe(validMs);
});

test('the metric is when the certificate that is served expires', async () => {
  const api = open();
  const { read } = certificateMeasure({ api, apps: undefined });
  const [sample] = await read();
  expect(sample).toEqual({ labels: { setting: 'tls' }, value: api.expiresMs() / 1_000 });
  expect(api.expiresMs()).toBeGreaterThan(Date.now() + DAY_MS - HOUR_MS);
});
