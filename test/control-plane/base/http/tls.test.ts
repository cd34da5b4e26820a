// Certificates from files: renewed ones are served, and a pair that does not match changes nothing.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { connect, createServer, type Server } from 'node:tls';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { pino } from 'pino';
import { openTls, type TlsFiles } from '../../../../control-plane/base/http/listen.ts';
import { makeAuthority } from '../../../kit/certificate.ts';
import { openBench } from './fixture.ts';

const authority = makeAuthority();
const NAMES = ['IP:127.0.0.1'];

let dir: string;
let files: TlsFiles;
let lines: string[];
let server: Server;
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
  const { cert, key } = authority.issue(NAMES);
  write('certificate_file', cert);
  write('key_file', key);
});
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
  const tls = openTls('apps.tls', files, { log });
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
  const tls = hasTls ? { tls: openTls('tls', files, { log }) } : {};
  const bench = await openBench({ http: { ...given, ...tls } });
  for (const url of ['/v1/openapi.json', '/nowhere', '/v1/things']) {
    const { headers } = await bench.http.inject({ method: 'GET', url });
    expect(headers['strict-transport-security']).toBe(expected);
  }
  await bench.close();
});

test.each([
  ['a key of another certificate', (): void => write('key_file', authority.issue(NAMES).key)],
  ['no certificate', (): void => write('certificate_file', 'x')],
  ['no file', (): void => rmSync(files.key_file)],
])('%s at the start is an error', (_, spoil) => {
  spoil();
  expect(() => openTls('apps.tls', files, { log })).toThrow(/./);
});
