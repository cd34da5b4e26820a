// GET /v1/instances/{id}/request: what was asked for with a launch, as it was sent, without the values of its variables.
import { beforeEach, expect, test } from 'vitest';
import { sql } from '../../control-plane/base/db/db.ts';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { expectRefused } from './refusals.ts';

openApiForEachTest();
beforeEach(() => api.world.machine({ gpus: 2 }));

/** Launches, and returns the path of the instance. */
async function launched(body: object): Promise<string> {
  expect((await postLaunch(api, owner, body)).status).toBe(202);
  return `/v1/instances/${String((await newestInstance(api, owner))['id'])}`;
}
const call = (method: 'GET' | 'DELETE', path: string): Promise<Answer> => api.call(method, path, { key: owner.key });

test('has what was sent, also for an ended instance, and can be sent again with the values', async () => {
  const env = { TOKEN: 'very-secret', EPOCHS: '3' };
  const asked = {
    ...LAUNCH,
    image: 'busybox',
    cmd: ['train', '--fast'],
    ports: [{ port: 8080, protocol: 'http', primary: true }],
    auto_terminate_hours: 3,
    requirements: { regions: ['eu-west'], min_vram_gb: 40 },
    name: 'train',
  };
  const first = await launched({ ...asked, env });
  const answer = await call('GET', `${first}/request`);
  expect(answer.status).toBe(200);
  expect(answer.json).toEqual({ ...asked, env_names: ['TOKEN', 'EPOCHS'] });
  expect(answer.body).not.toContain('very-secret');
  await call('DELETE', first);
  await api.world.drive();
  const { env_names: names, ...again } = (await call('GET', `${first}/request`)).json;
  expect(names).toEqual(Object.keys(env));
  const second = await launched({ ...again, env });
  expect((await call('GET', `${second}/request`)).json).toEqual(answer.json);
});

test('of a launch without variables has no names of them, and one that cannot be read is 404', async () => {
  const path = await launched(LAUNCH);
  expect((await call('GET', `${path}/request`)).json).toMatchObject({ ...LAUNCH, env_names: [] });
  const id = path.split('/').at(-1) ?? '';
  await api.world.db.tx('test.newer', (tx) =>
    tx.run(sql`update instances set request = ${'{"version":9}'} where id = ${id}`),
  );
  expect(expectRefused(path, await call('GET', `${path}/request`), 'not_found').text).toContain('by this version');
});
