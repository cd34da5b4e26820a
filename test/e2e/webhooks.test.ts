// A webhook of the real service: a receiver written from the specification receives the events of an instance's whole life.
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { NewApiKey } from '../../shared/api/account.ts';
import { NewWebhookEndpoint } from '../../shared/api/webhook.ts';
import { openApiClient, terminate } from '../kit/api-client.ts';
import { makeCertificate } from '../kit/certificate.ts';
import { eventually } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { type Received, verify } from '../kit/webhook-receiver.ts';

const TYPES = ['instance.creating', 'instance.running', 'instance.terminated'];

let stack: RentalStack;
let server: Server;
let secret = '';
const heard: { event: Received; answer: number }[] = [];

beforeAll(async () => {
  stack = await openRentalStack();
  const certificate = makeCertificate(['IP:127.0.0.1']);
  server = createServer(certificate, (request, reply) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks);
      const answer = verify(secret, { headers: request.headers, body }, Date.now() / 1000);
      heard.push({ event: JSON.parse(body.toString()) as Received, answer });
      reply.writeHead(answer).end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  await allowReceivers(certificate.cert);
});

afterAll(async () => {
  server.closeAllConnections();
  server.close();
  expect(await stack.end()).toEqual([]);
});

const port = (): number => (server.address() as AddressInfo).port;

/** Starts the control plane again with what an operator of a private installation would configure. */
async function allowReceivers(cert: string): Promise<void> {
  const { configPath, daemon } = stack.controlPlane;
  const caFile = join(stack.dir, 'receiver.pem');
  writeFileSync(caFile, cert);
  process.env['NODE_EXTRA_CA_CERTS'] = caFile;
  const config = JSON.parse(readFileSync(configPath, 'utf8')) as object;
  const webhooks = { allowed_networks: ['127.0.0.0/8'], allowed_ports: [port()] };
  writeFileSync(configPath, JSON.stringify({ ...config, webhooks }));
  await daemon.stop();
  await daemon.start();
  delete process.env['NODE_EXTRA_CA_CERTS'];
}

test('a receiver gets the events of an instance that is created, runs and ends, and every signature is genuine', async () => {
  const { controlPlane, customer } = stack;
  const argv = ['admin', 'key', 'create', '--org', customer.orgId, '--name', 'hooks', '--scopes', 'webhooks:write'];
  const { key } = NewApiKey.parse(await controlPlane.operator(...argv));
  const url = `https://127.0.0.1:${port()}/hook`;
  const made = await openApiClient(controlPlane.baseUrl, key).post(
    '/webhook-endpoints',
    { url, event_types: TYPES },
    NewWebhookEndpoint,
  );
  secret = made.secret;
  const { id } = await stack.rent();
  await terminate(customer.api, id);
  await eventually('three events', 20_000, async () => (heard.length >= TYPES.length ? true : undefined));
  expect(heard.map(({ event, answer }) => [event.type, event.data.instance.id, answer])).toEqual(
    TYPES.map((type) => [type, id, 204]),
  );
});
