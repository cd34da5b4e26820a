// The image of a launch (specification 4.3, 4.9, 7.2): what is refused before anything is created, and what private images need.
import { beforeEach, describe, expect, test } from 'vitest';
import { text } from '../../control-plane/base/db/columns.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import { parseReference } from '../../control-plane/rental/launch/reference.ts';
import { refused, unavailable, unreachable } from '../../control-plane/rental/launch/refusals.ts';
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import { REGISTRY_CREDENTIALS_PER_ORG_MAX } from '../../shared/limits.ts';
import { z } from 'zod';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, made, newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

const PINNED = /^ghcr\.io\/org\/app@sha256:[0-9a-f]{64}$/;

/** What there was before the first launch. */
let before: Record<string, unknown>;
openApiForEachTest();
beforeEach(async () => {
  await api.world.machine({ gpus: 8 });
  before = await made(api, owner);
});

const launch = (body: object): Promise<Answer> => postLaunch(api, owner, { ...LAUNCH, ...body });
const store = (body: object = {}, account = owner): Promise<Answer> => {
  const credential = { name: 'ci', registry: 'ghcr.io', username: 'me', password: 's3cret', ...body };
  return api.call('POST', '/v1/registry-credentials', { key: account.key, body: credential });
};
const newest = (): Promise<Record<string, unknown>> => newestInstance(api, owner);

/** What the host of the newest instance should run. */
async function desired(): Promise<unknown[]> {
  const row = await findInstance(api.world.db.read, String((await newest())['id']));
  return (await api.world.rooms.workloads.desired(row?.machine_id ?? '')).workloads;
}

const expectNothing = async (): Promise<void> => expect(await made(api, owner)).toEqual(before);

describe('a refused image', () => {
  // Specification 4.3: A malformed image reference gives 400.
  // Specification 7.2: 400: malformed image reference.
  test.each(['ghcr.io/Org/app', 'https://ghcr.io/org/app', 'alpine@sha256:12', 'app app', 'ghcr.io/org/äpp', ''])(
    'with the malformed reference "%s" is 400; no registry is asked and nothing is made',
    async (image) => {
      const answer = await launch({ image });
      expect(answer).toMatchObject({
        status: 400,
        json: { code: 'image_reference_invalid', errors: [{ field: 'image' }] },
      });
      expect(api.world.images.asked).toEqual([]);
      await expectNothing();
    },
  );

  const reference = parseReference('ghcr.io/org/app:1');
  // Specification 4.3: image is verified before provisioning: unknown gives 422 image_unavailable, an outage 502 registry_unreachable, no operation,
  // nothing billed.
  // Specification 7.2: image_unavailable is 422: an unknown image, a failed registry login.
  // Specification 7.2: registry_unreachable is 502: a registry outage during the image check.
  test.each([
    ['unknown', refused({ reference, login: undefined }, 404), 422, 'image_unavailable', 'check its name and tag'],
    ['private', refused({ reference, login: undefined }, 401), 422, 'image_unavailable', 'registry_credential_id'],
    [
      'private, with a wrong login',
      refused({ reference, login: {} }, 401),
      422,
      'image_unavailable',
      'its login is wrong',
    ],
    ['for arm64 alone', unavailable(reference, 'is for linux/arm64'), 422, 'image_unavailable', 'linux/arm64'],
    ['at a registry that is down', unreachable(reference, 'it is away'), 502, 'registry_unreachable', 'try again'],
    ['at a registry that limits us', refused({ reference, login: {} }, 429, '30'), 502, 'registry_unreachable', '30'],
  ])('that is %s: nothing is created and nothing billed', async (_what, ...expected) => {
    const [refusal, status, code, word] = expected;
    api.world.images.known.set('ghcr.io/org/app:1', refusal);
    const answer = await launch({ image: 'ghcr.io/org/app:1' });
    expect(answer).toMatchObject({ status, json: { code, status } });
    expect(`${answer.body} ${answer.headers['retry-after']}`).toContain(word);
    expect(answer.headers['retry-after'] === undefined).toBe(status === 422);
    await expectNothing();
  });

  // Specification 7.2: 400: an image reference that is too long to be one.
  test('that is longer than 512 characters is 400; a shorter one is accepted', async () => {
    const name = `ghcr.io/${'a'.repeat(200)}:${'t'.repeat(128)}`;
    expect(await launch({ image: `${name}@sha256:${'a'.repeat(512)}` })).toMatchObject({
      status: 400,
      json: {
        code: 'image_reference_invalid',
        errors: [{ field: 'image', rule: 'must have at most 512 characters' }],
      },
    });
    expect((await launch({ image: `${name}@sha256:${'a'.repeat(64)}` })).status).toBe(202);
  });
});

describe('the command of a container', () => {
  beforeEach(() => {
    api.world.images.known.set('quiet:latest', { hasEntrypoint: false, hasCmd: false });
    api.world.images.known.set('both:latest', { hasEntrypoint: true, hasCmd: true });
  });

  // Specification 4.3: An image with nothing left to run is refused.
  test.each([
    ['an image without a command', { image: 'quiet' }],
    ['a cleared cmd', { image: 'quiet', cmd: [] }],
    ['an entrypoint and a cmd that are cleared', { image: 'both', entrypoint: [], cmd: [] }],
  ])('is missing with %s, and the launch is refused', async (_what, body) => {
    const answer = await launch(body);
    expect(answer).toMatchObject({ status: 422, json: { code: 'image_unavailable' } });
    expect(answer.json['detail']).toContain('set cmd or entrypoint');
    await expectNothing();
  });

  const OWN = null;
  // Specification 4.3: cmd and entrypoint override those of the image; an empty array clears; env holds plain container variables.
  test.each<[string, object, { entrypoint: string[] | null; cmd: string[] | null }]>([
    ['nothing, which leaves both to the image', { image: 'both' }, { entrypoint: OWN, cmd: OWN }],
    ['a cmd', { image: 'quiet', cmd: ['run'] }, { entrypoint: OWN, cmd: ['run'] }],
    [
      'an entrypoint, which drops the image CMD',
      { image: 'quiet', entrypoint: ['run'] },
      { entrypoint: ['run'], cmd: OWN },
    ],
    [
      'an entrypoint that is cleared, which keeps the image CMD',
      { image: 'both', entrypoint: [] },
      { entrypoint: [], cmd: OWN },
    ],
    [
      'a cmd that is cleared, which keeps the image ENTRYPOINT',
      { image: 'both', cmd: [] },
      { entrypoint: OWN, cmd: [] },
    ],
  ])('is sent to the host for a launch with %s', async (_what, body, command) => {
    expect((await launch({ ...body, env: { A: 'b' } })).status).toBe(202);
    expect(await desired()).toMatchObject([{ command, env: { A: 'b' } }]);
  });
});

test('sixteen image checks of an organisation run at once; one that waits too long is 429, and other organisations do not wait', async () => {
  const hold = Promise.withResolvers<void>();
  api.world.images.held = hold.promise;
  const { asked } = api.world.images;
  const ask = (): Promise<Answer> => api.call('POST', '/v1/instances', { key: owner.key, body: LAUNCH });
  const first = Array.from({ length: 16 }, ask);
  while (asked.length < 16) await api.world.clock.nextTurn();
  let answer: Answer | undefined;
  const late = ask().then((given) => (answer = given));
  while (answer === undefined) await api.world.clock.advance(1_000);
  expect(answer).toMatchObject({ status: 429, json: { code: 'rate_limit_exceeded' }, headers: { 'retry-after': '5' } });
  expect(asked).toHaveLength(16);
  const { key } = await api.account();
  api.world.images.held = undefined;
  expect((await api.call('POST', '/v1/instances', { key, body: LAUNCH })).status).toBe(202);
  hold.resolve();
  await Promise.all([...first, late]);
});

// Specification 2.2: image is the reference pinned to its verified digest.
// Specification 4.3: image is pinned to the verified digest.
test('an instance shows its image pinned to the verified digest, and its host pulls that digest', async () => {
  await launch({ image: 'ghcr.io/org/app:1' });
  const { image } = await newest();
  expect(image).toMatch(PINNED);
  expect(await desired()).toMatchObject([{ image, pull_login: false }]);
});

describe('a registry credential', () => {
  // Specification 4.9: POST /v1/registry-credentials stores a registry credential.
  test('is stored sealed, listed without its password, and deleted', async () => {
    const made = await store();
    expect(made).toMatchObject({ status: 201, json: { name: 'ci', registry: 'ghcr.io', username: 'me' } });
    const { id } = made.json;
    const listed = await api.call('GET', '/v1/registry-credentials', { key: owner.key });
    expect(listed.json).toEqual({ data: [made.json], next_cursor: null });
    expect(`${made.body}${listed.body}`).not.toContain('s3cret');
    const rows = await api.world.db.read.all(
      z.object({ sealed_password: text }),
      sql`select sealed_password from registry_credentials`,
    );
    expect(rows).toHaveLength(1);
    expect(JSON.stringify(rows)).not.toContain('s3cret');
    const gone = `/v1/registry-credentials/${String(id)}`;
    expect((await api.call('DELETE', gone, { key: owner.key })).status).toBe(204);
    expect(await api.call('DELETE', gone, { key: owner.key })).toMatchObject({
      status: 404,
      json: { code: 'not_found' },
    });
  });

  // Specification 4.9: Fields of a registry credential have rules.
  test.each([
    ['registry', { registry: 'https://ghcr.io/org' }],
    ['registry', { registry: '' }],
    ['username', { username: 'a:b' }],
    ['username', { username: '' }],
    ['password', { password: '' }],
    ['password', { password: 'x'.repeat(8193) }],
    ['name', { name: 'two\nlines' }],
  ])('with a wrong %s is refused by its name', async (field, body) => {
    const answer = await store(body);
    expect(answer).toMatchObject({ status: 422, json: { code: 'validation_failed', errors: [{ field }] } });
  });

  test('for a registry at a private address is refused, and nothing is stored', async () => {
    api.world.images.privates.add('localhost:5000');
    expect(await store({ registry: 'localhost:5000' })).toMatchObject({
      status: 422,
      json: { code: 'validation_failed', errors: [{ field: 'registry', rule: expect.stringContaining('public') }] },
    });
    const listed = await api.call('GET', '/v1/registry-credentials', { key: owner.key });
    expect(listed.json).toMatchObject({ data: [] });
    expect((await store({ registry: 'localhost.example.com' })).status).toBe(201);
  });

  test('may have a password of 8192 characters, with line breaks', async () => {
    expect((await store({ password: `{\n${'x'.repeat(8190)}` })).status).toBe(201);
  });

  test(`is refused as number ${REGISTRY_CREDENTIALS_PER_ORG_MAX + 1}`, async () => {
    for (let count = 0; count < REGISTRY_CREDENTIALS_PER_ORG_MAX; count += 1) expect((await store()).status).toBe(201);
    expect(await store()).toMatchObject({ status: 409, json: { code: 'conflict' } });
    expect((await store({}, await api.account())).status).toBe(201);
  });

  test('is sent to the registry of the image', async () => {
    const { id } = (await store({ registry: 'GHCR.io' })).json;
    expect((await launch({ image: 'ghcr.io/org/app:1', registry_credential_id: id })).status).toBe(202);
    expect(api.world.images.asked).toMatchObject([{ login: { credentialId: id, username: 'me', password: 's3cret' } }]);
  });

  test.each([
    ['alpine', 'docker.io'],
    ['registry-1.docker.io/org/app', 'https://index.docker.io/v1/'],
    ['docker.io/org/app', 'index.docker.io'],
  ])('for %s may be stored for %s', async (image, registry) => {
    const { id } = (await store({ registry })).json;
    expect((await launch({ image, registry_credential_id: id })).status).toBe(202);
  });

  // Specification 4.3: registry_credential_id must be for the registry of the image (422).
  // Specification 7.2: 422: registry mismatch.
  test('refuses the launch by its name if it is unknown, of another organisation, or for another registry', async () => {
    const { id: foreign } = (await store({}, await api.account())).json;
    const { id: own } = (await store()).json;
    for (const [credential, image, rule] of [
      ['rc_none', 'ghcr.io/org/app', 'must be one of GET /v1/registry-credentials, which rc_none is not'],
      [foreign, 'ghcr.io/org/app', 'must be one of GET /v1/registry-credentials'],
      [own, 'quay.io/org/app', 'is for ghcr.io, but the image is at quay.io'],
    ]) {
      const answer = await launch({ image, registry_credential_id: credential });
      expect(answer).toMatchObject({ status: 422, json: { code: 'validation_failed' } });
      expect(answer.json.errors?.[0]).toMatchObject({
        field: 'registry_credential_id',
        rule: expect.stringContaining(String(rule)),
      });
    }
    expect(api.world.images.asked).toEqual([]);
    await expectNothing();
  });
});

describe('the login for a pull', () => {
  async function privateLaunch(): Promise<{ credentialId: string; machineId: string; workloadId: string; id: string }> {
    const { id: credentialId } = (await store()).json;
    await launch({ image: 'ghcr.io/org/app:1', registry_credential_id: credentialId });
    const id = String((await newest())['id']);
    const row = await findInstance(api.world.db.read, id);
    return {
      id,
      credentialId: String(credentialId),
      machineId: row?.machine_id ?? '',
      workloadId: row?.workload_id ?? '',
    };
  }
  const ask = (machineId: string, workloadId: string) => api.world.rooms.instances.pullLogin(machineId, workloadId);

  test('is given to the host that has the workload, whose desired state says that it must ask', async () => {
    const { machineId, workloadId } = await privateLaunch();
    const { workloads } = await api.world.rooms.workloads.desired(machineId);
    expect(workloads).toMatchObject([
      { workload_id: workloadId, image: expect.stringMatching(PINNED), pull_login: true },
    ]);
    expect(JSON.stringify(workloads)).not.toContain('s3cret');
    expect(await ask(machineId, workloadId)).toEqual({ kind: 'bearer', token: 'pull-token' });
  });

  test('is not given to another host, for a public image, or once the workload should go', async () => {
    const { id, machineId, workloadId } = await privateLaunch();
    const other = await api.world.machine();
    expect(await ask(other.machineId, workloadId)).toBeUndefined();
    expect(await ask(machineId, 'wl_none')).toBeUndefined();
    await launch({ image: 'ghcr.io/org/public' });
    const open = await findInstance(api.world.db.read, String((await newest())['id']));
    expect(await ask(open?.machine_id ?? '', open?.workload_id ?? '')).toBeUndefined();
    expect((await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key })).status).toBe(202);
    expect(await ask(machineId, workloadId)).toBeUndefined();
  });

  test('is refused once the credential is deleted', async () => {
    const { credentialId, machineId, workloadId } = await privateLaunch();
    await api.call('DELETE', `/v1/registry-credentials/${credentialId}`, { key: owner.key });
    await expect(ask(machineId, workloadId)).rejects.toMatchObject({
      code: 'image_unavailable',
      message: expect.stringContaining('its registry credential was deleted'),
    });
  });
});
