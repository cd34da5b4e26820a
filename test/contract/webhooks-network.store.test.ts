// Webhook deliveries over a real network (specification 6.2, 6.3): what a receiver that knows only the specification gets, and if none goes.
import { once } from 'node:events';
import type { IncomingHttpHeaders } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openOutbound } from '../../control-plane/base/outbound/outbound.ts';
import { type Certificate, makeCertificate } from '../kit/certificate.ts';
import { eventually } from '../kit/processes.ts';
import { verify } from '../kit/webhook-receiver.ts';
import { LAUNCH } from '../kit/world.ts';
import { type Api, openApi } from './api.ts';

const ENDPOINTS = '/v1/webhook-endpoints';

let secret = '';
const answers: number[] = [];
let certificate: Certificate;
let server: Server;
let port: number;
let real: Api;
beforeEach(async () => {
  certificate = makeCertificate(['DNS:hook.test']);
  server = createServer(certificate, (request, reply) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const headers: IncomingHttpHeaders = request.headers;
      const now = Math.floor(real.world.clock.now() / 1000);
      answers.push(verify(secret, { headers, body: Buffer.concat(chunks) }, now));
      reply.writeHead(answers.at(-1) ?? 400).end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  port = (server.address() as AddressInfo).port;
  answers.length = 0;
});
afterEach(async () => {
  await real.close();
  server.closeAllConnections();
  server.close();
});
async function openReal(privateNetworks: readonly string[]): Promise<string> {
  // Set once the world exists; the guard does not ask before a request.
  const clock = {
    now: () => real.world.clock.now(),
    monotonicMs: () => 0,
    nextTurn: async () => undefined,
    sleep: async () => undefined,
    after: () => () => undefined,
  };
  const guarded = openOutbound(
    { ports: 'any', privateNetworks, namedHosts: [] },
    { clock, ca: certificate.cert, resolve: async () => ['127.0.0.1'] },
  );
  real = await openApi({ webhookOutbound: guarded });
  const { key } = await real.account();
  const made = await real.call('POST', ENDPOINTS, {
    key,
    body: { url: `https://hook.test:${port}/a`, event_types: ['instance.creating'] },
  });
  expect(made.status).toBe(201);
  secret = String(made.json['secret']);
  await real.world.machine();
  await real.call('POST', '/v1/instances', { key, body: LAUNCH });
  const [delivery] = await eventually('attempt', 10_000, async () => {
    await real.world.rooms.webhooks.courier.run();
    const { json } = await real.call('GET', `${ENDPOINTS}/${String(made.json['id'])}/deliveries`, { key });
    return json.data?.[0]?.['attempts'] === 1 ? json.data : undefined;
  });
  return JSON.stringify(delivery);
}

// Specification 5: Webhook deliveries are signed.
// Specification 6.3: A receiver verifies the signature over the raw body.
test('a receiver that knows only the specification verifies the deliveries', async () => {
  expect(JSON.parse(await openReal(['127.0.0.0/8']))).toMatchObject({
    status: 'succeeded',
    attempt_history: [{ response_status: 204, remote_ip: '127.0.0.1' }],
  });
  expect(answers).toEqual([204]);
});
// Specification 6.2: A name that leads inside is not called.
test('a name with an internal address is not called, and the history says so without the address', async () => {
  const delivery = await openReal([]);
  expect(JSON.parse(delivery)).toMatchObject({
    status: 'retrying',
    attempt_history: [{ error_code: 'blocked_address', response_status: null }],
  });
  expect(delivery).not.toContain('127.0.0.1');
  expect(answers).toEqual([]);
});
