// Launches of templates (specification 4.3, 7.2): what they may set, the GPU that they get, the models that fit, and what is never shown.
import { beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { raw, sql } from '../../control-plane/base/db/db.ts';
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import { parseReference } from '../../control-plane/rental/launch/reference.ts';
import { refused, unreachable } from '../../control-plane/rental/launch/refusals.ts';
import { createLog } from '../../shared/log.ts';
import { type Answer, made, newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

const GIB = 1024 ** 3;
const SMALL = { name: 'NVIDIA GeForce RTX 4070 Ti', memory_mib: 12_282 };
const RTX_4090 = { name: 'NVIDIA GeForce RTX 4090', memory_mib: 24_564 };
const L40S = { name: 'NVIDIA L40S', memory_mib: 46_068 };
const MODEL = 'Qwen/Qwen3-8B';

let logged: string;
openApiForEachTest(() => {
  logged = '';
  return { log: createLog('test', 'trace', { write: (line) => void (logged += line) }) };
});
beforeEach(() => weigh(15));

/** The model takes this much. */
const weigh = (gib: number): void => void api.world.modelHub.known.set(MODEL, { bytes: gib * GIB });
const launch = (body: object = {}): Promise<Answer> => {
  const vllm = { template_id: 'vllm', gpu_count: 1, tier: 'on_demand', env: { MODEL } };
  return postLaunch(api, owner, { ...vllm, ...body });
};
const newest = (): Promise<Record<string, unknown>> => newestInstance(api, owner);
const desired = async () => {
  const row = await findInstance(api.world.db.read, String((await newest())['id']));
  const { workloads } = await api.world.rooms.workloads.desired(row?.machine_id ?? '');
  return workloads.find(({ workload_id: id }) => id === row?.workload_id);
};

describe('the list of templates', () => {
  test('is open to everybody, in pages, and shows what a launch needs to know, but no image', async () => {
    const all = await api.call('GET', '/v1/templates');
    expect(all.json.data?.map(({ id }) => id)).toEqual(['comfyui', 'jupyter', 'pytorch', 'sglang', 'ssh', 'vllm']);
    const vllm = all.json.data?.at(-1);
    expect(vllm).toMatchObject({ title: 'vLLM', min_vram_gb: 16, primary_port: 8000 });
    expect(vllm?.['env']).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ key: 'MODEL', required: true, user_overridable: true, secret: false }),
        expect.objectContaining({ key: 'HF_TOKEN', required: false, user_overridable: true, secret: true }),
        expect.objectContaining({ key: 'HF_HOME', user_overridable: false, default: expect.any(String) }),
      ]),
    );
    expect(all.body).not.toMatch(/vllm-openai|"image"|pytorch\/pytorch/);
    const ids: unknown[] = [];
    for (let cursor: string | null | undefined = ''; typeof cursor === 'string';) {
      const page: Answer = await api.call('GET', `/v1/templates?limit=4${cursor && `&cursor=${cursor}`}`);
      ids.push(...(page.json.data?.map(({ id }) => id) ?? []));
      cursor = page.json.next_cursor;
    }
    expect(ids).toEqual(all.json.data?.map(({ id }) => id));
  });
});

describe('a launch of a template', () => {
  // Specification 2.2: image is shown for custom-image launches only: template launches never expose theirs.
  // Specification 2.2: connection.app_url of a template instance.
  // Specification 4.3: A template runs with its variables, and is served at its app URL.
  test('runs its image with its command, its variables and its port, and does not show the image', async () => {
    await api.world.machine({ gpus: 2 });
    const accepted = await launch({ gpu_type: 'H100_SXM', gpu_count: 2, env: { MODEL, MAX_MODEL_LEN: '4096' } });
    expect(accepted).toMatchObject({ status: 202, json: { state: 'pending', resource_id: null } });
    expect(accepted.json).not.toHaveProperty('warnings');
    const { id, ...instance } = await newest();
    expect(instance).toMatchObject({ gpu_type: 'H100_SXM', gpu_count: 2, status: 'allocating' });
    expect(instance).not.toHaveProperty('image');
    const workload = await desired();
    expect(workload?.image).toMatch(/^vllm\/vllm-openai@sha256:[0-9a-f]{64}$/);
    expect(workload?.command.entrypoint).toEqual(['python3', '-m', 'vllm.entrypoints.openai.api_server']);
    expect(workload?.command.cmd?.join(' ')).toContain(
      `--model ${MODEL} --host 0.0.0.0 --port 8000 --tensor-parallel-size 2`,
    );
    expect(workload?.command.cmd?.join(' ')).toContain('--max-model-len 4096');
    expect(workload?.env).toEqual({
      MODEL,
      MAX_MODEL_LEN: '4096',
      GPU_MEMORY_UTILIZATION: '0.9',
      HF_HOME: '/root/.cache/huggingface',
    });
    await api.world.start(String(id));
    expect(await newest()).toMatchObject({
      status: 'running',
      connection: { app_url: `https://${String(id)}.apps.test` },
    });
  });

  // Specification 4.3: env with template_id accepts only keys the template marks user_overridable; others 422.
  // Specification 4.3: image excludes template_id.
  // Specification 7.2: 422: image combined with template_id; a template env key that cannot be overridden.
  test.each<[string, object, string[]]>([
    ['an unknown template', { template_id: 'nothing' }, ['template_id']],
    ['an environment beside it', { environment: 'certified' }, ['environment']],
    ['an image beside it', { image: 'busybox' }, ['template_id']],
    ['a cmd', { cmd: ['run'] }, ['cmd']],
    ['an entrypoint', { entrypoint: ['run'] }, ['entrypoint']],
    ['ports', { ports: [] }, ['ports']],
    ['a registry credential', { registry_credential_id: 'rc' }, ['registry_credential_id']],
    ['no value for a required variable', { env: {} }, ['env.MODEL']],
    ['no variables at all', { env: undefined }, ['env.MODEL']],
    ['a variable that is not to be set', { env: { MODEL, HF_HOME: '/x' } }, ['env.HF_HOME']],
    ['variables that it does not have', { env: { A: '1', B: '2' } }, ['env.A', 'env.B', 'env.MODEL']],
  ])('with %s is 422, names the field, and makes nothing', async (_what, body, fields) => {
    await api.world.machine();
    const before = await made(api, owner);
    const answer = await launch(body);
    expect(answer).toMatchObject({ status: 422, json: { code: 'validation_failed' } });
    expect(answer.json.errors?.map(({ field }) => field)).toEqual(fields);
    expect(await made(api, owner)).toEqual(before);
  });

  // Specification 4.3: A registry outage during a template launch gives 502 registry_unreachable.
  test('whose registry is away is 502, and whose image is gone is 422; neither names the image', async () => {
    await api.world.machine();
    const reference = parseReference('vllm/vllm-openai:v0.11.0');
    const { known } = api.world.images;
    known.set('vllm/vllm-openai:v0.11.0', unreachable(reference, 'it is away'));
    const away = await launch();
    expect(away).toMatchObject({ status: 502, json: { code: 'registry_unreachable' } });
    expect(away.headers['retry-after']).toBe('10');
    known.set('vllm/vllm-openai:v0.11.0', refused({ reference, login: undefined }, 404));
    const gone = await launch();
    expect(gone).toMatchObject({
      status: 422,
      json: { code: 'environment_unavailable', errors: [{ field: 'template_id' }] },
    });
    expect(`${away.body}${gone.body}`).not.toContain('openai');
    expect(await newest()).toEqual({});
  });

  // Specification 2.2: No failure of a template launch names its image.
  test('fails on every host without the name of the image if no host can pull it', async () => {
    for (const dollars of [1, 2, 3]) await api.world.machine({ dollars });
    const { json } = await launch({ gpu_type: 'H100_SXM' });
    const id = String((await newest())['id']);
    for (let tries = 0; tries < 3; tries += 1) {
      await api.world.observe(id, { phase: 'failed', failure_code: 'image_pull_failed', detail: 'no vllm-openai' });
      await api.world.drive();
    }
    const operation = await api.call('GET', `/v1/operations/${String(json['operation_id'])}`, { key: owner.key });
    expect(operation.json).toMatchObject({ state: 'failed', error: { code: 'operation_failed' } });
    const events = await api.call('GET', `/v1/instances/${id}/events`, { key: owner.key });
    const instance = await api.call('GET', `/v1/instances/${id}`, { key: owner.key });
    expect(`${operation.body}${events.body}${instance.body}`).not.toContain('openai');
  });
});

describe('a secret', () => {
  const SECRET = 'hf_verysecretvalue';

  // Specification 4.3: Secret values are redacted from operation metadata.
  test('reaches the host, and is in no answer, table, event or log', async () => {
    await api.world.machine();
    const accepted = await launch({ env: { MODEL, HF_TOKEN: SECRET }, gpu_type: 'H100_SXM' });
    expect(accepted.status).toBe(202);
    expect((await desired())?.env['HF_TOKEN']).toBe(SECRET);
    const id = String((await newest())['id']);
    await api.world.start(id);
    const urls = [`/v1/instances/${id}?include=credentials`, `/v1/instances/${id}/events`, '/v1/instances'];
    urls.push(`/v1/operations/${String(accepted.json['operation_id'])}`);
    for (const url of urls) expect((await api.call('GET', url, { key: owner.key })).body).not.toContain(SECRET);
    const everything = await wholeDatabase();
    expect(everything).toContain(id);
    expect(everything).not.toContain(SECRET);
    expect(logged).toContain(id);
    expect(logged).not.toContain(SECRET);
  });

  test('is not in the refusal of another variable', async () => {
    await api.world.machine();
    const answer = await launch({ env: { HF_TOKEN: SECRET, HF_HOME: SECRET } });
    expect(answer.status).toBe(422);
    expect(`${answer.body}${logged}`).not.toContain(SECRET);
  });

  async function wholeDatabase(): Promise<string> {
    const { db } = api.world;
    const named =
      db.dialect === 'sqlite'
        ? sql`select name from sqlite_master where type = 'table'`
        : sql`select table_name as name from information_schema.tables where table_schema = current_schema()`;
    const tables = await db.read.all(z.object({ name: z.string() }), named);
    const rows = [];
    for (const { name } of tables) rows.push(await db.read.all(z.looseObject({}), sql`select * from ${raw(name)}`));
    expect(rows.length).toBeGreaterThan(10);
    return JSON.stringify(rows, (_key, value: unknown) => (typeof value === 'bigint' ? String(value) : value));
  }
});

describe('a gpu_type', () => {
  // Specification 4.3: An explicit gpu_type below the min_vram_gb of the template returns 422 gpu_vram_too_small.
  // Specification 7.2: gpu_vram_too_small is 422: explicit gpu_type VRAM below template min_vram_gb.
  test('below the min_vram_gb of the template is gpu_vram_too_small, and at that size it is accepted', async () => {
    await api.world.machine({ gpu: SMALL });
    const answer = await launch({ gpu_type: 'RTX_4070_TI' });
    expect(answer).toMatchObject({
      status: 422,
      json: { code: 'gpu_vram_too_small', errors: [{ field: 'gpu_type', rule: 'must have at least 16 GB of VRAM' }] },
    });
    expect(answer.json['detail']).toContain('has 12 GB');
    await api.world.machine({ gpu: { name: 'NVIDIA A16', memory_mib: 15_356 } });
    expect((await launch({ gpu_type: 'A16' })).status).toBe(202);
    expect(await newest()).toMatchObject({ gpu_type: 'A16' });
  });

  test('that no host offers is environment_unavailable', async () => {
    await api.world.machine();
    const answer = await launch({ gpu_type: 'ABACUS' });
    expect(answer).toMatchObject({
      status: 422,
      json: { code: 'environment_unavailable', errors: [{ field: 'gpu_type' }] },
    });
  });

  test('of several sizes is placed on a size that is large enough', async () => {
    await api.world.machine({ gpu: RTX_4090, dollars: 1 });
    await api.world.machine({ gpu: { ...RTX_4090, memory_mib: 49_140 }, dollars: 3 });
    weigh(30);
    expect((await launch({ gpu_type: 'RTX_4090' })).status).toBe(202);
    expect(await newest()).toMatchObject({ price_per_hour: 3 });
  });
});

test('a reserved launch needs GPUs of its contract that are large enough', async () => {
  await api.world.machine({ gpu: RTX_4090, region: 'here' });
  const now = api.world.clock.now();
  await api.world.rooms.reservations.create({
    org_id: owner.orgId,
    title: 'small ones',
    starts_at: new Date(now).toISOString(),
    ends_at: new Date(now + 30 * 24 * 3_600_000).toISOString(),
    renewal: 'manual',
    commitment: [{ gpu_type: 'RTX_4090', gpu_count: 1, region: 'here' }],
  });
  // One of the same type that is large enough, but not in the contract.
  await api.world.machine({ gpu: { ...RTX_4090, memory_mib: 49_140 } });
  const reserved = { gpu_type: 'RTX_4090', tier: 'reserved' };
  weigh(24.1);
  expect(await launch(reserved)).toMatchObject({
    status: 422,
    json: { code: 'gpu_vram_too_small', errors: [{ field: 'gpu_type' }] },
  });
  weigh(24);
  expect((await launch(reserved)).status).toBe(202);
  expect(await newest()).toMatchObject({ tier: 'reserved', price_per_hour: 0, region: 'here' });
  expect((await launch(reserved)).json['code']).toBe('reservation/no_capacity');
});

describe('a launch without a gpu_type', () => {
  const operationOf = async ({ json }: Answer): Promise<Answer['json']> => {
    await api.world.drive();
    return (await api.call('GET', `/v1/operations/${String(json['operation_id'])}`, { key: owner.key })).json;
  };

  // Specification 4.3: gpu_type may be omitted with template_id: the cheapest eligible GPU is selected.
  test('takes the cheapest free GPU that is large enough, and shows it', async () => {
    await api.world.machine({ gpu: SMALL, dollars: 0.5 });
    await api.world.machine({ gpu: L40S, dollars: 1 });
    await api.world.machine({ dollars: 3 });
    await launch();
    expect(await newest()).toMatchObject({ gpu_type: 'L40S', price_per_hour: 1 });
    // Now that one is busy.
    await launch();
    expect(await newest()).toMatchObject({ gpu_type: 'H100_SXM', price_per_hour: 3 });
    // Nothing is free: accepted, and the operation tells.
    const late = await launch();
    expect(late.status).toBe(202);
    const operation = await operationOf(late);
    expect(operation).toMatchObject({ state: 'failed', error: { code: 'no_capacity' } });
    expect((operation['error'] as { detail: string }).detail).toContain('1 with at least 18 GB of VRAM, 0 with enough');
  });

  test('takes the cheapest GPU of all if the template needs no particular size', async () => {
    await api.world.machine({ gpu: SMALL, dollars: 0.5 });
    await api.world.machine({ dollars: 0.6 });
    await launch({ template_id: 'ssh', env: undefined });
    expect(await newest()).toMatchObject({ gpu_type: 'RTX_4070_TI' });
    expect((await desired())?.command).toEqual({ entrypoint: null, cmd: ['sleep', 'infinity'] });
  });

  test('respects the region, the price cap, the disk, the GPU count and the pinned offering', async () => {
    await api.world.machine({ gpu: L40S, dollars: 1, region: 'far' });
    await api.world.machine({ dollars: 3, region: 'near', gpus: 2 });
    await launch({ region: 'near' });
    expect(await newest()).toMatchObject({ gpu_type: 'H100_SXM', region: 'near' });
    await launch({ gpu_count: 2, max_price_per_hour: 1 });
    expect(await newest()).toMatchObject({ gpu_type: 'H100_SXM', status: 'allocating', price_per_hour: 0 });
    await launch({ max_price_per_hour: 1 });
    expect(await newest()).toMatchObject({ gpu_type: 'L40S' });
    await api.world.machine({ gpu: RTX_4090, dollars: 9, diskEnforced: true });
    await launch({ disk_gb: 50 });
    expect(await newest()).toMatchObject({ gpu_type: 'RTX_4090', disk_gb: 50 });
    const { json } = await api.call('GET', '/v1/pricing');
    const pin = json.data?.find((row) => row['gpu_type'] === 'H100_SXM')?.['offering_id'];
    await launch({ offering_id: pin });
    expect(await newest()).toMatchObject({ gpu_type: 'H100_SXM', price_per_hour: 3 });
  });

  test('is gpu_vram_too_small if the pinned offering is too small', async () => {
    await api.world.machine({ gpu: SMALL });
    const { json } = await api.call('GET', '/v1/pricing');
    const answer = await launch({ offering_id: json.data?.[0]?.['offering_id'] });
    expect(answer).toMatchObject({ status: 422, json: { code: 'gpu_vram_too_small' } });
  });

  test('is environment_unavailable if no offering is large enough', async () => {
    await api.world.machine({ gpu: SMALL });
    const answer = await launch();
    expect(answer).toMatchObject({
      status: 422,
      json: { code: 'environment_unavailable', errors: [{ field: 'template_id' }] },
    });
    expect(answer.json['detail']).toContain(
      'No host on offer has a GPU with at least 18 GB of VRAM, as this template needs for the 15 GB of',
    );
  });
});

describe('a model', () => {
  // Specification 4.3: An oversized model on an explicit gpu_type returns 422 model_too_large, with vllm and sglang.
  // Specification 7.2: model_too_large is 422: template model weights exceed the explicit GPU's VRAM.
  test('larger than the VRAM of an explicit gpu_type is model_too_large with both figures; at its edge it is not', async () => {
    await api.world.machine({ gpus: 2 });
    weigh(80.1);
    const refusal = await launch({ gpu_type: 'H100_SXM' });
    expect(refusal).toMatchObject({
      status: 422,
      json: { code: 'model_too_large', weights_gb: 80.1, vram_gb: 80, errors: [{ field: 'env.MODEL' }] },
    });
    expect(refusal.json['detail']).toContain('take 80.1 GB, more than the 80 GB of VRAM of 1 x H100_SXM');
    expect((await launch({ template_id: 'sglang', gpu_type: 'H100_SXM' })).json['code']).toBe('model_too_large');
    expect(await newest()).toEqual({});
    weigh(80);
    expect((await launch({ gpu_type: 'H100_SXM' })).status).toBe(202);
  });

  test('is spread over all GPUs', async () => {
    await api.world.machine({ gpus: 2 });
    weigh(160.1);
    expect((await launch({ gpu_type: 'H100_SXM', gpu_count: 2 })).json['code']).toBe('model_too_large');
    weigh(160);
    expect((await launch({ gpu_type: 'H100_SXM', gpu_count: 2 })).status).toBe(202);
  });

  // Specification 4.3: Template deploys may add warnings.
  test('that leaves little VRAM is accepted with a warning, which its operation shows too', async () => {
    await api.world.machine();
    weigh(70);
    const { json } = await launch({ gpu_type: 'H100_SXM' });
    expect(json['warnings']).toEqual([expect.stringContaining('take 70 of the 80 GB')]);
    const operation = await api.call('GET', `/v1/operations/${String(json['operation_id'])}`, { key: owner.key });
    expect(operation.json['warnings']).toEqual(json['warnings']);
  });

  // Specification 4.3: Auto-select raises its VRAM floor instead of model_too_large.
  test('raises the smallest VRAM that is chosen, with a reserve for work', async () => {
    await api.world.machine({ gpu: RTX_4090, dollars: 1, gpus: 2 });
    await api.world.machine({ gpu: L40S, dollars: 2, gpus: 2 });
    await api.world.machine({ dollars: 3, gpus: 2 });
    weigh(20);
    await launch();
    expect(await newest()).toMatchObject({ gpu_type: 'RTX_4090' });
    weigh(21);
    await launch();
    expect(await newest()).toMatchObject({ gpu_type: 'L40S' });
    weigh(41);
    await launch({ gpu_count: 2 });
    expect(await newest()).toMatchObject({ gpu_type: 'H100_SXM', gpu_count: 2 });
  });

  // Specification 4.3: Gated, private or unknown repositories are never blocked; the 202 carries a warning.
  test.each([
    ['is gated: HF_TOKEN must be of an account that was granted access'],
    ['does not exist on the model hub, or is private'],
    ['could not be looked up, because the model hub did not answer in time'],
  ])('that %s is never blocked, and the answer has a warning', async (unknown) => {
    await api.world.machine();
    api.world.modelHub.known.set(MODEL, { unknown });
    for (const body of [{}, { gpu_type: 'H100_SXM' }]) {
      const answer = await launch(body);
      expect(answer.status).toBe(202);
      expect(answer.json['warnings']).toEqual([
        `The model ${MODEL} ${unknown}. It was not checked whether it fits into the GPUs.`,
      ]);
    }
  });
});
