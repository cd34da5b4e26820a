// What a secondary answers itself, and what only the primary answers.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { brought } from '../../control-plane/brings.ts';
import { operatorSessionRoutes } from '../../control-plane/admin/admin.ts';
import type { Route } from '../../control-plane/base/http/route.ts';
import { type FakeUpstream, openFakeUpstream } from '../kit/fake-upstream.ts';
import { someModels } from '../kit/models.ts';
import { type Api, type ApiAccount, openApi } from './api.ts';

let upstream: FakeUpstream;
/** The API of a secondary that does not know where the primary is. */
let api: Api;
let owner: ApiAccount;
beforeEach(async () => {
  upstream = await openFakeUpstream();
  const settings = { models: someModels(upstream.baseUrl) };
  api = await openApi({ settings }, { primary: () => 'unknown' });
  owner = await api.account();
});
afterEach(async () => {
  await api.world.verify();
  await api.close();
  await upstream.close();
});

const routes = (): Route[] => brought(api.world.brings(), 'routes');
const named = (some: readonly Route[]): string[] => some.map(({ method, path }) => `${method} ${path}`).toSorted();

test('a secondary answers all that only reads, but for files, which may be on the disk of the primary', () => {
  const away = routes().filter(({ method, everywhere }) => method === 'GET' && everywhere === false);
  expect(named(away)).toEqual(['GET /v1/blobs/{key}', 'GET /v1/files/{id}/content', 'GET /v1/videos/{id}/content']);
});

test('of what changes something, a secondary answers only requests to models', () => {
  const here = routes().filter(({ method, everywhere }) => method !== 'GET' && everywhere === true);
  expect(named(here)).toEqual(['POST /v1/chat/completions', 'POST /v1/embeddings', 'POST /v1/images/generations']);
});

test('it answers nothing that an operator asks for over the web', () => {
  const ofOperators = operatorSessionRoutes(brought(api.world.brings(), 'operatorRoutes'), api.world.audit);
  expect(ofOperators.filter(({ everywhere }) => everywhere !== false)).toEqual([]);
});

test('without a primary, reads and requests to models go on, and the rest is asked to come again in a second', async () => {
  const { key } = owner;
  expect(await api.call('GET', '/v1/instances', { key })).toMatchObject({ status: 200 });
  const chat = { model: 'acme/small-chat', messages: [{ role: 'user', content: 'hi' }] };
  expect(await api.call('POST', '/v1/chat/completions', { key, body: chat })).toMatchObject({ status: 200 });
  expect(await api.call('POST', '/v1/webhook-endpoints', { key, body: {} })).toMatchObject({
    status: 503,
    headers: { 'retry-after': '1' },
    json: { code: 'unavailable' },
  });
});
