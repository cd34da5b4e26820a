// Applications in containers, reached as a customer does: curl at the app URL with the instance's login, and a TCP port of its own.
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Instance } from '../../shared/api/instance.ts';
import { curlApp } from '../kit/web-clients.ts';
import { eventually } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';

let stack: RentalStack;
let instance: Instance;
let caFile: string;

/** A page, a program behind it that shows its environment, and an echo on a port of its own. */
const PROGRAM = `
mkdir -p /www/cgi-bin
echo hello > /www/index.html
cat > /www/cgi-bin/show <<'END'
#!/bin/sh
printf 'Content-Type: text/plain\\r\\n\\r\\n'
env
wc -c
END
chmod +x /www/cgi-bin/show
nc -ll -p 7007 -e cat &
exec httpd -f -p 127.0.0.1:8080 -h /www
`;

beforeAll(async () => {
  stack = await openRentalStack();
  const ports = [
    { port: 8080, protocol: 'http' as const, primary: true },
    { port: 9, protocol: 'http' as const },
    { port: 7007, protocol: 'tcp' as const },
  ];
  const { id } = await stack.rent({ entrypoint: ['sh', '-c', PROGRAM], ports });
  instance = await stack.customer.api.get(`/instances/${id}?include=credentials`, Instance);
  caFile = join(stack.dir, 'apps-ca.pem');
  writeFileSync(caFile, stack.controlPlane.appCertificate);
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
});

const curl = (url: string, ...more: string[]) => curlApp(caFile, url, ...more);
const login = (): string[] => {
  const { app_user: user, app_password: password } = instance.connection ?? {};
  return ['--user', `${user}:${password}`];
};
const appUrl = (): string => instance.connection?.app_url ?? '';

// Specification 2.2: connection.app_user and app_password open app_url.
// Specification 4.3: The primary port is served behind the login of the instance.
// Specification 5: Instance applications use HTTP Basic with connection.app_user and connection.app_password.
test('the app URL shows the page to whoever has the login', async () => {
  const page = await eventually('the page', 15_000, async () => {
    const got = await curl(`${appUrl()}/`, ...login());
    return got.status === '200' ? got : undefined;
  });
  expect(page.body).toBe('hello\n');
  expect((await curl(`${appUrl()}/`)).status).toBe('401');
  expect((await curl(`${appUrl()}/`, '--user', 'svc:wrong')).status).toBe('401');
  const bearer = ['--header', `Authorization: Bearer ${instance.connection?.app_password}`];
  expect((await curl(`${appUrl()}/`, ...bearer)).status).toBe('200');
});

test('a body goes in, and the application sees if the request came from but not the login', async () => {
  const file = join(stack.dir, 'upload');
  writeFileSync(file, Buffer.alloc(5_000_000, 'x'));
  const { body } = await curl(`${appUrl()}/cgi-bin/show`, ...login(), '--data-binary', `@${file}`);
  expect(body).toContain('5000000');
  expect(body).toContain(`HTTP_X_FORWARDED_HOST=${new URL(appUrl()).host}`);
  expect(body).not.toContain('HTTP_AUTHORIZATION');
});

test('a port where nothing listens has another answer than a port that is not served', async () => {
  const url = instance.connection?.ports?.find(({ port }) => port === 9)?.url ?? '';
  expect(await curl(`${url}/`, ...login())).toMatchObject({ status: '502', body: expect.stringContaining('port 9') });
  expect((await curl(`${url.replace('//p9-', '//p10-')}/`, ...login())).status).toBe('404');
});

test('a tcp port carries bytes both ways and ends when either end does', async () => {
  const port = instance.connection?.ports?.find(({ protocol }) => protocol === 'tcp')?.public_port ?? 0;
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  await once(socket, 'connect');
  const sent = 'x'.repeat(1_000_000);
  socket.end(sent);
  expect((await text(socket)).length).toBe(sent.length);
});
