// Settings that the operator changes while the control plane runs: models, templates, environments and limits apply from the next request
// on.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { parseModels } from '../../control-plane/models/catalog/models.ts';
import { readEnvironments } from '../../control-plane/rental/launch/environments.ts';
import { readTemplates } from '../../control-plane/rental/launch/templates.ts';
import type { Changeable } from '../../control-plane/settings.ts';
import { type Answer, type Api, type ApiAccount, openApi } from '../contract/api.ts';
import { type FakeUpstream, openFakeUpstream } from '../kit/fake-upstream.ts';
import { modelsFile, someModels } from '../kit/models.ts';
import { LAUNCH } from '../kit/world.ts';

let first: FakeUpstream;
let second: FakeUpstream;
let api: Api;
let owner: ApiAccount;
const shipped = { templates: readTemplates(undefined), environments: readEnvironments(undefined) };
const now = (change: Partial<Changeable> = {}): Changeable => ({
  presets: shipped,
  signUpPolicy: 'open',
  models: someModels(first.baseUrl),
  openLaunchesPerOrg: 1_000,
  openInferenceRequestsPerKey: 64,
  openInferenceRequestsPerOrg: 256,
  openVideosPerOrg: 20,
  ...change,
});
beforeEach(async () => {
  [first, second] = [await openFakeUpstream(), await openFakeUpstream()];
  api = await openApi({ settings: now() });
  owner = await api.account();
});
afterEach(async () => {
  await api.world.verify();
  await api.close();
  await first.close();
  await second.close();
});

const chat = (model: string): Promise<Answer> =>
  api.call('POST', '/v1/chat/completions', {
    key: owner.key,
    body: { model, messages: [{ role: 'user', content: 'hi' }] },
  });

test('models are added, removed and moved to other servers', async () => {
  expect((await chat('small')).status).toBe(200);
  const models = parseModels(modelsFile(second.baseUrl, { id: 'acme/large-chat', aliases: ['large'] }), 'models.yaml');
  api.world.rooms.reload(now({ models }));
  expect((await chat('small')).status).toBe(404);
  // A server that was not configured before.
  expect((await chat('large')).status).toBe(200);
  expect([first.asked.length, second.asked.length]).toEqual([1, 1]);
  const { json } = await api.call('GET', '/v1/models?modality=chat', { key: owner.key });
  expect(json.data?.map(({ id }) => id)).toEqual(['acme/large-chat']);
  expect((await api.call('GET', '/v1/models/small', { key: owner.key })).status).toBe(404);
});

test('templates and environments change in their lists and for launches', async () => {
  await api.world.machine();
  const templates = new Map([...shipped.templates].filter(([id]) => id === 'ssh'));
  const { frameworks } = shipped.environments;
  const [kept = '', ...gone] = Object.keys(frameworks)
    .filter((id) => shipped.environments.default.includes(id))
    .concat(Object.keys(frameworks).filter((id) => !shipped.environments.default.includes(id)));
  const environments = {
    ...shipped.environments,
    frameworks: { [kept]: frameworks[kept] },
  } as typeof shipped.environments;
  api.world.rooms.reload(now({ presets: { templates, environments } }));
  expect((await api.call('GET', '/v1/templates')).json.data?.map(({ id }) => id)).toEqual(['ssh']);
  expect((await api.call('GET', '/v1/environments')).json['frameworks']).toEqual([kept]);
  const launch = (body: object): Promise<Answer> =>
    api.call('POST', '/v1/instances', {
      key: owner.key,
      body: { gpu_type: 'H100_SXM', gpu_count: 1, tier: 'on_demand', ...body },
    });
  expect(await launch({ template_id: 'jupyter' })).toMatchObject({
    status: 422,
    json: { errors: [{ field: 'template_id' }] },
  });
  expect(await launch({ environment: `certified:${gone[0]}` })).toMatchObject({
    json: { code: 'environment_unavailable' },
  });
  expect((await launch({ environment: `certified:${kept}` })).status).toBe(202);
});

test('limits apply to the next request', async () => {
  await api.world.machine({ gpus: 3 });
  const launch = (): Promise<Answer> => api.call('POST', '/v1/instances', { key: owner.key, body: LAUNCH });
  expect((await launch()).status).toBe(202);
  api.world.rooms.reload(now({ openLaunchesPerOrg: 1, openInferenceRequestsPerKey: 0 }));
  expect((await launch()).json['code']).toBe('rate_limit_exceeded');
  expect((await chat('small')).status).toBe(429);
  api.world.rooms.reload(now({ openInferenceRequestsPerOrg: 0 }));
  expect((await chat('small')).status).toBe(429);
  api.world.rooms.reload(now({ openLaunchesPerOrg: 2 }));
  expect((await launch()).status).toBe(202);
  expect((await chat('small')).status).toBe(200);
});

test('the rooms of a process do not change the settings object that they were given', async () => {
  const given = now();
  const other = await openApi({ settings: given });
  other.world.rooms.reload(now({ presets: { ...shipped, templates: new Map() }, models: [] }));
  expect(given.presets.templates.size).toBeGreaterThan(1);
  expect((await api.call('GET', '/v1/templates')).json.data?.length).toBeGreaterThan(1);
  await other.close();
});
