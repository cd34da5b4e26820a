// Launches of environments (specification 2.16, 4.3): the grammar, what can be served, and spot without an image.
import { beforeEach, describe, expect, test } from 'vitest';
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import { parseReference } from '../../control-plane/rental/launch/reference.ts';
import { refused } from '../../control-plane/rental/launch/refusals.ts';
import { type Answer, made, newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

openApiForEachTest();
beforeEach(async () => {
  await api.world.machine({ gpus: 8 });
});

const launch = (body: object = {}): Promise<Answer> => {
  const plain = { gpu_type: 'H100_SXM', gpu_count: 1, tier: 'on_demand' };
  return postLaunch(api, owner, { ...plain, ...body });
};
const newest = (): Promise<Record<string, unknown>> => newestInstance(api, owner);
const workload = async () => {
  const row = await findInstance(api.world.db.read, String((await newest())['id']));
  const { workloads } = await api.world.rooms.workloads.desired(row?.machine_id ?? '');
  return workloads.find(({ workload_id: id }) => id === row?.workload_id);
};

// Specification 2.16: frameworks, versions, includes and vm_images.
// Specification 2.16: FrameworkVersion: id, label, variant and default.
// Specification 2.16: IncludeItem: name, and version, absent for unpinned components.
// Specification 4.9: GET /v1/environments returns the Environments object.
test('the list is open to everybody, and has frameworks, versions, contents and VM images as specified', async () => {
  const { status, json, body } = await api.call('GET', '/v1/environments');
  expect(status).toBe(200);
  expect(json).toMatchObject({
    frameworks: ['pytorch', 'tensorflow'],
    versions: {
      pytorch: [
        { id: '2.8.0', label: expect.any(String), variant: 'cuda128', default: true },
        { id: '2.5.1', label: expect.any(String), variant: 'cuda124', default: false },
      ],
    },
    includes: {
      base: { cuda128: expect.arrayContaining([{ name: 'CUDA', version: '12.8.1' }, { name: 'cuDNN' }]) },
      pytorch: { cuda128: expect.any(Array), cuda124: expect.any(Array) },
    },
    vm_images: {},
  });
  expect(body).not.toMatch(/nvidia\/cuda|pytorch\/pytorch/);
});

describe('a launch', () => {
  // Specification 2.2: image is shown for custom-image launches only: certified launches never expose theirs.
  // Specification 4.3: environment omitted means the provider default.
  test.each([
    [undefined, 'nvidia/cuda@'],
    ['provider_template', 'nvidia/cuda@'],
    ['certified', 'nvidia/cuda@'],
    ['certified:pytorch', 'pytorch/pytorch@'],
    ['certified:pytorch@2.5.1', 'pytorch/pytorch@'],
  ])('of %s runs its image, which is not shown, and stays up', async (environment, image) => {
    const body = environment === undefined ? {} : { environment };
    expect(await launch({ ...body, env: { A: 'b' } })).toMatchObject({ status: 202, json: { state: 'pending' } });
    expect(await newest()).not.toHaveProperty('image');
    expect(await workload()).toMatchObject({
      image: expect.stringContaining(`${image}sha256:`),
      command: { entrypoint: null, cmd: ['sleep', 'infinity'] },
      env: { A: 'b' },
    });
  });

  // Specification 2.16: FrameworkVersion: id is the token after the @, and variant the CUDA variant.
  test('takes the named version, or the default version if none is named', async () => {
    const tags = (): (string | null)[] => api.world.images.asked.map(({ reference }) => reference.tag);
    await launch({ environment: 'certified:pytorch' });
    await launch({ environment: 'certified:pytorch@2.5.1' });
    expect(tags()).toEqual(['2.8.0-cuda12.8-cudnn9-devel', '2.5.1-cuda12.4-cudnn9-devel']);
  });

  // Specification 4.3: environment has a grammar.
  test.each([
    'Certified',
    '',
    'certified:',
    'certified:pytorch@',
    'certified:py torch',
    'certified:a@b@c',
    'raw_vm:',
    'raw_vm:a@b',
    'provider_template:x',
    'pytorch',
  ])('of "%s" is 422 with the grammar', async (environment) => {
    const answer = await launch({ environment });
    expect(answer).toMatchObject({
      status: 422,
      json: { code: 'validation_failed', errors: [{ field: 'environment' }] },
    });
    expect(answer.json['detail']).toContain('certified:<framework>@<version>');
    expect(await newest()).toEqual({});
  });

  // Specification 4.3: A well-formed environment, raw_vm too, that cannot be served gives 422 environment_unavailable.
  // Specification 7.2: environment_unavailable is 422: a well-formed environment that the placed machine cannot serve.
  test.each([
    ['certified:caffe', 'there is no framework caffe; there are pytorch, tensorflow'],
    ['certified:pytorch@0.1', 'there is no version 0.1 of pytorch; there are 2.8.0, 2.5.1'],
    ['raw_vm', 'no host on offer runs virtual machines; use certified'],
    ['raw_vm:ubuntu-24.04', 'no host on offer runs virtual machines; use certified'],
  ])('of %s is 422 environment_unavailable, which names the available ones', async (environment, why) => {
    const before = await made(api, owner);
    const answer = await launch({ environment });
    expect(answer).toMatchObject({
      status: 422,
      json: { code: 'environment_unavailable', errors: [{ field: 'environment' }] },
    });
    expect(answer.json['detail']).toContain(why);
    expect(await made(api, owner)).toEqual(before);
  });

  // Specification 4.3: cmd, entrypoint, ports and registry_credential_id require image; image excludes environment.
  // Specification 7.2: 422: image combined with environment.
  test.each<[string, object, string]>([
    ['cmd', { cmd: [] }, 'cmd'],
    ['entrypoint', { entrypoint: [] }, 'entrypoint'],
    ['ports', { ports: [{ port: 80, protocol: 'http' }] }, 'ports'],
    ['registry_credential_id', { registry_credential_id: 'rc' }, 'registry_credential_id'],
    ['an image', { image: 'busybox' }, 'environment'],
    ['no gpu_type', { gpu_type: undefined }, 'gpu_type'],
  ])('with %s is 422 that names the field', async (_what, more, field) => {
    const answer = await launch({ environment: 'certified', ...more });
    expect(answer).toMatchObject({ status: 422, json: { code: 'validation_failed', errors: [{ field }] } });
  });

  test("of an environment whose image is gone is environment_unavailable, without the image's name", async () => {
    const name = 'nvidia/cuda:12.8.1-cudnn-devel-ubuntu24.04';
    api.world.images.known.set(name, refused({ reference: parseReference(name), login: undefined }, 404));
    const answer = await launch();
    expect(answer).toMatchObject({ status: 422, json: { code: 'environment_unavailable' } });
    expect(answer.body).not.toContain('nvidia/cuda');
  });

  test('on a gpu_type that no host offers is environment_unavailable', async () => {
    expect((await launch({ gpu_type: 'ABACUS' })).json).toMatchObject({ code: 'environment_unavailable' });
  });
});

test('a launch without a GPU and a template is refused with the fields that it needs', async () => {
  const answer = await launch({ gpu_type: undefined });
  expect(answer.json.errors).toEqual([
    { field: 'gpu_type', rule: 'is required without template_id, offering_id and requirements.gpu_types' },
  ]);
});

// Specification 2.2: tier is spot if spot was asked for.
// Specification 2.2: reservation_id is null for spot.
// Specification 4.3: spot is accepted but currently returns no capacity.
// Specification 9: The spot tier stays in the enumerations.
// Specification 9: Spot is soft-deprecated: a launch that asks for it is told to use on_demand.
test('a spot launch without an image is accepted, and its operation says that spot has no capacity', async () => {
  const accepted = await launch({ tier: 'spot' });
  expect(accepted.status).toBe(202);
  await api.world.drive();
  const operation = await api.call('GET', `/v1/operations/${String(accepted.json['operation_id'])}`, {
    key: owner.key,
  });
  expect(operation.json).toMatchObject({
    state: 'failed',
    error: { code: 'no_capacity', detail: expect.stringMatching(/no spot capacity at present.*Use tier on_demand/) },
  });
  expect(await newest()).toMatchObject({ tier: 'spot', status: 'error', price_per_hour: 0, reservation_id: null });
});
