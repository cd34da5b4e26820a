// A replica is ready after a real answer of its model: what a server may do instead, and the words for it.
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Upstream } from '../../../control-plane/models/catalog/models.ts';
import { whyNotReady, whyUnwell } from '../../../control-plane/models/replicas/readiness.ts';
import { NOTHING_TO_NOTE, serverOf } from '../../../control-plane/models/replicas/servers.ts';
import { type Exchanges, openExchanges } from '../../../control-plane/base/outbound/exchange.ts';
import type { Modality } from '../../../shared/api/model.ts';
import { dripping, type FakeUpstream, openFakeUpstream } from '../../kit/fake-upstream.ts';
import { fleetModels } from '../../kit/models.ts';
import { type VirtualClock, virtualClock, whileTimePasses } from '../../kit/virtual-clock.ts';

let server: FakeUpstream;
let exchanges: Exchanges;
let clock: VirtualClock;
beforeEach(async () => {
  server = await openFakeUpstream();
  clock = virtualClock();
  exchanges = openExchanges({ ports: 'any', privateNetworks: [], namedHosts: [] }, { clock });
});
afterEach(async () => {
  await exchanges.close();
  await server.close();
});

function replica(engine: Upstream['engine']): Upstream {
  const [deployment] = fleetModels({ engine }).map(({ economy }) => economy?.deployment);
  if (deployment === undefined) throw new Error('the model has a deployment');
  const row = { id: 'rep_1', pool_id: 'p', machine_id: 'm', workload_id: 'w', deployment };
  return serverOf(row, { openStream, ...NOTHING_TO_NOTE });
}

async function openStream(): Promise<Duplex> {
  const socket = connect(Number(new URL(server.baseUrl).port), '127.0.0.1');
  await once(socket, 'connect');
  return socket;
}

const why = (modality: Modality = 'chat', engine: Upstream['engine'] = 'vllm'): Promise<string | undefined> =>
  whyNotReady(replica(engine), modality, { exchanges, signal: new AbortController().signal });

describe('a server is ready', () => {
  test.each<[Modality, string, object]>([
    ['chat', '/v1/chat/completions', { choices: [{ message: { role: 'assistant', content: '' } }] }],
    ['embedding', '/v1/embeddings', { data: [{ index: 0, embedding: [0.5] }] }],
    ['image', '/v1/images/generations', { data: [{ b64_json: 'AAAA' }] }],
  ])('after an answer of its modality: %s', async (modality, path, body) => {
    server.usual = () => ({ body });
    expect(await why(modality)).toBeUndefined();
    expect(server.asked).toMatchObject([{ path, body: { model: 'tiny' } }]);
    expect(server.looks).toBe(1);
  });

  test('if its model still thinks and has no text yet, as callers are answered by it then', async () => {
    server.usual = () => ({ body: { choices: [{ message: { role: 'assistant', reasoning: 'Hm' } }] } });
    expect(await why()).toBeUndefined();
  });

  test('without a health check if its engine has none', async () => {
    server.health = { status: 500, body: {} };
    expect(await why('chat', 'other')).toBeUndefined();
    expect(server.looks).toBe(0);
  });
});

describe('a server is not ready', () => {
  test('while it loads its model, and it is not asked before', async () => {
    server.health = { status: 503, body: {} };
    expect(await why()).toBe('its server answers 503 to GET /health');
    expect(server.asked).toEqual([]);
  });

  test.each<[string, object | string]>([
    ['an empty object', {}],
    ['no choice', { choices: [] }],
    ['text', 'hello'],
    ['half of JSON', '{"choices":['],
  ])('with %s in place of a completion', async (_what, body) => {
    server.usual = () => ({ body });
    expect(await why()).toBe('its server does not answer with a chat completion');
  });

  test('with an error, with a vector of no numbers, or with a broken answer', async () => {
    server.usual = () => ({ status: 400, body: { error: { message: 'no' } } });
    expect(await why()).toBe('its server answers 400 to POST /v1/chat/completions');
    server.usual = () => ({ body: { data: [{ embedding: [] }] } });
    expect(await why('embedding')).toBe('its server does not answer with an embedding');
    server.usual = () => ({ ending: 'cut' });
    expect(await why()).toContain('its server does not answer: the connection ended before the answer was whole');
  });

  test('if it answers byte by byte for longer than a real answer takes', async () => {
    server.usual = () => dripping(clock, ' ');
    expect(await whileTimePasses(clock, why(), 250)).toContain('its server does not answer: no whole answer within');
    expect(clock.monotonicMs()).toBeLessThan(90_000);
  });

  test('if nothing listens on its port', async () => {
    const { replica: reached, ...rest } = replica('vllm');
    if (reached === undefined) throw new Error('it is a replica');
    const dial = (): Promise<Duplex> => Promise.reject(new Error('connection refused'));
    const absent = { ...rest, replica: { ...reached, dial } };
    const asking = { exchanges, signal: new AbortController().signal };
    expect(await whyNotReady(absent, 'chat', asking)).toBe('its server does not answer: connection refused');
    expect(await whyUnwell(absent, asking)).toBe('its server does not answer: connection refused');
  });
});

test('a server without a health check is well whatever it answers, but for its own errors', async () => {
  const asking = { exchanges, signal: new AbortController().signal };
  server.health = { status: 404, body: {} };
  expect(await whyUnwell(replica('other'), asking)).toBeUndefined();
  expect(await whyUnwell(replica('vllm'), asking)).toBe('its server answers 404 to GET /health');
  server.health = { status: 500, body: {} };
  expect(await whyUnwell(replica('other'), asking)).toBe('its server answers 500 to GET /health');
});
