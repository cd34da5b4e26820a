// TLS from files, without a proxy: API, agent link and SSH streams, and a certificate that is renewed while a session runs.
import { writeFileSync } from 'node:fs';
import { connect, getCACertificates, type PeerCertificate, setDefaultCACertificates } from 'node:tls';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { capture } from '../kit/capture.ts';
import { makeAuthority } from '../kit/certificate.ts';
import { API_NAMES } from '../kit/control-plane.ts';
import { echoes, eventually } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';

const authority = makeAuthority();
const before = getCACertificates('default');
let stack: RentalStack;

beforeAll(async () => {
  // The fetch of this process needs it; the agent and curl read a file.
  setDefaultCACertificates([...before, authority.cert]);
  stack = await openRentalStack({ authority });
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
  setDefaultCACertificates(before);
});

/** What the API shows to a new connection. */
async function served(): Promise<PeerCertificate> {
  const { port } = new URL(stack.controlPlane.baseUrl);
  const socket = connect({ port: Number(port), host: '127.0.0.1', ca: authority.cert });
  await new Promise<void>((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject));
  const certificate = socket.getPeerCertificate();
  socket.destroy();
  return certificate;
}

test('the API speaks TLS, and a client that does not trust its authority refuses', async () => {
  const url = `${stack.controlPlane.baseUrl}/pricing`;
  const curl = (...more: string[]) => capture(['curl', '-sS', '-o', '/dev/null', '-w', '%{http_code}', ...more, url]);
  const known = await curl('--cacert', stack.tlsCaFile ?? '');
  expect(known.stdout.toString()).toBe('200');
  expect((await curl()).stderr).toMatch(/certificate/);
  expect((await curl('--cacert', stack.tlsCaFile ?? '', '--tls-max', '1.1')).code).not.toBe(0);
});

test('the API tells browsers to use nothing but TLS', async () => {
  const { headers } = await fetch(`${stack.controlPlane.baseUrl}/pricing`);
  expect(headers.get('strict-transport-security')).toBe('max-age=31536000');
});

test('a rental runs over wss, and its session goes on while the certificate is renewed', async () => {
  const instance = await stack.rent();
  const ssh = stack.ssh(instance);
  const session = ssh.start('cat');
  await echoes(session, 'with the first certificate');
  const { serialNumber: first } = await served();
  const files = stack.controlPlane.apiTls;
  const renewed = authority.issue(API_NAMES);
  // The files are written one after the other, as renewal programs do. They do not match in between.
  writeFileSync(files?.certificate_file ?? '', renewed.cert);
  expect((await served()).serialNumber).toBe(first);
  writeFileSync(files?.key_file ?? '', renewed.key);
  await eventually('the new certificate', 30_000, async () =>
    (await served()).serialNumber === first ? undefined : true,
  );
  await echoes(session, 'with the second certificate');
  await stack.host.daemon.stop();
  await stack.host.daemon.start();
  expect((await ssh.run('hostname')).stdout.toString()).toBe(`${instance.id}\n`);
  await session.stop();
});
