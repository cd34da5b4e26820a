// What `requirements` may not be, and what a launch shows of them (extension of specification 4.3).
import { expect, test } from 'vitest';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

openApiForEachTest();

const launch = (body: object): Promise<Answer> => postLaunch(api, owner, { ...LAUNCH, ...body });
const many = (count: number): string[] => Array.from({ length: count }, (_, index) => `T${index}`);

test.each(['gpu_types', 'regions'])('%s may be twenty, and no more', async (field) => {
  await api.world.machine();
  const own = field === 'gpu_types' ? { gpu_type: undefined } : {};
  const [known] = field === 'gpu_types' ? [LAUNCH.gpu_type] : ['eu-west'];
  const answer = (count: number): Promise<Answer> =>
    launch({ ...own, requirements: { [field]: [known, ...many(count - 1)] } });
  expect((await answer(20)).status).toBe(202);
  expect((await answer(21)).json.errors).toEqual([
    { field: `requirements.${field}`, rule: 'must have at most 20 entries' },
  ]);
});

test.each([null, [], 'eu-west'])('requirements cannot be %j', async (requirements) => {
  await api.world.machine();
  const refused = await launch({ requirements });
  expect(refused).toMatchObject({ status: 422, json: { errors: [{ field: 'requirements' }] } });
});

test('requirements without a member ask for nothing, so they go together with a pinned offering', async () => {
  await api.world.machine();
  const offering = (await api.call('GET', '/v1/pricing')).json.data?.[0]?.['offering_id'];
  expect((await launch({ offering_id: offering, requirements: {} })).status).toBe(202);
});

test('a launch that finds no place shows a region that it would take', async () => {
  await api.world.machine({ region: 'us-east' });
  await launch({ requirements: { regions: ['eu-north', 'eu-south'] } });
  expect(await newestInstance(api, owner)).toMatchObject({ status: 'allocating', region: 'eu-north' });
});
