// The size of a model's weights, from a scripted hub. Nothing that the hub does blocks a launch.
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type ModelHub, openModelHub, type Weights } from '../../../../control-plane/rental/launch/model-hub.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { createLog } from '../../../../shared/log.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';

let asked: string[];
let answer: (path: string, response: ServerResponse) => void;
let stop: () => Promise<void>;
let hub: ModelHub;
let url: string;

const log = createLog('test', 'silent');
const json = (response: ServerResponse, body: unknown, status = 200): void =>
  void response.writeHead(status).end(JSON.stringify(body));
const files = (sizes: Record<string, number | undefined>, more: object = {}): object => ({
  siblings: Object.entries(sizes).map(([rfilename, size]) => ({ rfilename, size })),
  ...more,
});
const answerWith = (body: unknown, status = 200): void => {
  answer = (_path, response) => json(response, body, status);
};

beforeEach(async () => {
  asked = [];
  const server = createServer((request, response) => {
    asked.push(request.url ?? '');
    answer(request.url ?? '', response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/api`;
  hub = openModelHub(url, { clock: systemClock(), log });
  stop = async () => {
    await hub.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
});
afterEach(() => stop());

describe('the weights of a model', () => {
  // Specification 4.3: The size of a model is that of the weights on the model hub.
  test.each<[string, Record<string, number>, number]>([
    ['shards', { 'model-00001-of-2.safetensors': 5, 'model-00002-of-2.safetensors': 7, 'config.json': 100 }, 12],
    ['one file', { 'model.safetensors': 5 }, 5],
    ['the same in other formats', { 'model.safetensors': 5, 'pytorch_model.bin': 6, 'consolidated.safetensors': 5 }, 5],
    [
      'the same in folders',
      { 'model.safetensors': 5, 'onnx/model.safetensors': 9, 'original/consolidated.00.bin': 9 },
      5,
    ],
    ['names of their own', { 'consolidated.safetensors': 8, 'pytorch_model.bin': 6 }, 8],
    ['.bin shards', { 'pytorch_model-1.bin': 2, 'pytorch_model-2.bin': 3, 'training_args.bin': 50 }, 5],
    ['.bin alone', { 'weights.bin': 4 }, 4],
  ])('as %s are those that servers load, once', async (_what, sizes, bytes) => {
    answerWith(files(sizes, { gated: false }));
    expect(await hub.sizeOf('org/model')).toEqual({ bytes });
    expect(asked).toEqual(['/api/models/org/model?blobs=true']);
  });

  test('are asked for once in a while', async () => {
    answerWith(files({ 'model.safetensors': 5 }));
    await Promise.all([hub.sizeOf('org/model'), hub.sizeOf('org/model')]);
    await hub.sizeOf('org/model');
    expect(asked).toHaveLength(1);
  });

  test('are found where the model has moved to, but not at anybody else', async () => {
    answer = (path, response) =>
      path.startsWith('/api/models/old')
        ? void response.writeHead(307, { location: '/api/models/new/model?blobs=true' }).end()
        : json(response, files({ 'model.safetensors': 5 }));
    expect(await hub.sizeOf('old')).toEqual({ bytes: 5 });
    answer = (_path, response) => void response.writeHead(307, { location: 'http://localhost:1/api' }).end();
    expect(await hub.sizeOf('elsewhere')).toHaveProperty('unknown');
    answer = (path, response) => void response.writeHead(307, { location: path }).end();
    expect(await hub.sizeOf('circle')).toHaveProperty('unknown');
  });
});

describe('a model', () => {
  test.each<[string, unknown, number, string]>([
    ['gated by hand', files({ 'model.safetensors': 5 }, { gated: 'manual' }), 200, 'is gated'],
    ['gated', files({ 'model.safetensors': 5 }, { gated: true }), 200, 'is gated'],
    ['private or unknown', { error: 'Repository not found' }, 401, 'does not exist on the model hub, or is private'],
    ['unknown', {}, 404, 'does not exist'],
    ['without weights', files({ 'model.gguf': 5 }), 200, 'has no weights'],
    ['with weights of no size', files({ 'model.safetensors': undefined }), 200, 'does not tell'],
    ['of another shape', { siblings: 7 }, 200, 'could not be looked up'],
    ['refused for another reason', {}, 451, 'could not be looked up'],
  ])('that is %s has no size, and the answer has the reason', async (_what, body, status, why) => {
    answerWith(body, status);
    expect(await hub.sizeOf('org/model')).toEqual({ unknown: expect.stringContaining(why) });
  });

  test.each(['', '/data/model', '../secrets', 'org/../model', 'https://elsewhere', 'org/model/more', 'a?b', '.hidden'])(
    'named %s is not asked for',
    async (model) => {
      expect(await hub.sizeOf(model)).toEqual({ unknown: expect.stringContaining('is no name') });
      expect(asked).toEqual([]);
    },
  );
});

describe('a hub', () => {
  test('delays a launch by at most three seconds if it is slow', async () => {
    const clock = virtualClock();
    const slow = openModelHub(url, { clock, log });
    const arrived = Promise.withResolvers<void>();
    answer = () => arrived.resolve();
    let weights: Weights | undefined;
    const asking = slow.sizeOf('org/model').then((size) => (weights = size));
    await arrived.promise;
    await clock.advance(2_999);
    expect(weights).toBeUndefined();
    await clock.advance(1);
    await asking;
    expect(weights).toEqual({ unknown: expect.stringContaining('did not answer in time') });
    await slow.close();
  });

  test.each([500, 503, 429])('that answers %i is asked again by the next launch', async (status) => {
    answerWith({}, status);
    expect(await hub.sizeOf('org/model')).toEqual({ unknown: expect.stringContaining('did not answer') });
    answerWith(files({ 'model.safetensors': 5 }));
    expect(await hub.sizeOf('org/model')).toEqual({ bytes: 5 });
  });

  test('that is down, or sends invalid JSON, or too much, blocks no launch', async () => {
    answer = (_path, response) => void response.end('<html>');
    expect(await hub.sizeOf('a')).toHaveProperty('unknown');
    answer = (_path, response) => void response.end('x'.repeat(4 * 1024 ** 2 + 1));
    expect(await hub.sizeOf('b')).toHaveProperty('unknown');
    answer = (_path, response) => void response.destroy();
    expect(await hub.sizeOf('c')).toHaveProperty('unknown');
    const gone = openModelHub('http://127.0.0.1:1/api', { clock: systemClock(), log });
    expect(await gone.sizeOf('d')).toEqual({ unknown: expect.stringContaining('did not answer') });
    await gone.close();
  });
});
