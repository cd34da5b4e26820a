// A template and an environment of the operator, from the YAML to the page and the shell, with a scripted model hub.
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Environments, Template } from '../../shared/api/preset.ts';
import { Instance } from '../../shared/api/instance.ts';
import { Operation } from '../../shared/api/operation.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { followOperation } from '../kit/api-client.ts';
import { capture } from '../kit/capture.ts';
import { curlApp } from '../kit/web-clients.ts';
import { eventually } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';

const GIB = 1024 ** 3;
const TOKEN = 'hf_the_token_of_the_customer';

let stack: RentalStack;
let hub: Server;
let directory: string;
/** Models whose repositories the hub has -> size of their weights. */
const SIZES: Record<string, number> = { 'org/small': 15 * GIB, 'org/large': 90 * GIB };

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'presets-'));
  hub = createServer((request, response) => {
    const [, model = ''] = /^\/api\/models\/(.+)\?/.exec(request.url ?? '') ?? [];
    const size = SIZES[model];
    if (size === undefined) response.writeHead(401).end('{}');
    else response.end(JSON.stringify({ gated: false, siblings: [{ rfilename: 'model.safetensors', size }] }));
  }).listen(0, '127.0.0.1');
  await once(hub, 'listening');
  stack = await openRentalStack({ settings: writePresets });
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
  hub.close();
  rmSync(directory, { recursive: true });
});

function writePresets(registryHost: string): object {
  const image = `${registryHost}/busybox:latest`;
  const page = {
    id: 'page',
    title: 'Page',
    description: 'Shows the model that it was given.',
    image,
    serves_model: true,
    min_vram_gb: 40,
    entrypoint: ['sh', '-c', 'mkdir /www && echo "$1 on $2" > /www/index.html && exec httpd -f -p 8000 -h /www', 'sh'],
    cmd: ['${MODEL}', '${GPU_COUNT}', ['--limit', '${LIMIT}']],
    ports: [{ port: 8000, protocol: 'http', primary: true }],
    env: {
      MODEL: { description: 'The model', required: true, user_overridable: true },
      HF_TOKEN: { description: 'The token', secret: true, user_overridable: true },
      LIMIT: { description: 'The limit', user_overridable: true },
    },
  };
  const environments = {
    default: 'certified',
    base: { cuda124: { default: true, image, includes: [{ name: 'busybox' }] } },
    frameworks: {},
  };
  const files = [join(directory, 'templates.yaml'), join(directory, 'environments.yaml')];
  [{ templates: [page] }, environments].forEach((content, i) => writeFileSync(files[i] ?? '', JSON.stringify(content)));
  return {
    templates_file: files[0],
    environments_file: files[1],
    model_hub_url: `http://127.0.0.1:${(hub.address() as AddressInfo).port}/api`,
  };
}

/** Launched and running; the accepted operation is what the 202 said. */
async function rent(request: object): Promise<{ accepted: Operation; instance: Instance }> {
  const { api } = stack.customer;
  const accepted = await api.post('/instances', { tier: 'on_demand', gpu_count: 1, ...request }, Operation);
  const done = await followOperation(api, accepted.operation_id);
  expect(done).toMatchObject({ state: 'succeeded' });
  const instance = await api.get(`/instances/${done.resource_id}?include=credentials`, Instance);
  return { accepted, instance };
}

test('a template runs on the GPU that was chosen, is served at its app URL, and keeps its secret', async () => {
  const { accepted, instance } = await rent({
    template_id: 'page',
    gpu_count: 2,
    env: { MODEL: 'org/small', HF_TOKEN: TOKEN },
  });
  expect(accepted.warnings).toBeUndefined();
  expect(instance).toMatchObject({ gpu_type: 'H100_SXM', gpu_count: 2 });
  expect(instance.image).toBeUndefined();
  const caFile = join(stack.dir, 'apps-ca.pem');
  writeFileSync(caFile, stack.controlPlane.appCertificate);
  const { app_url: url = '', app_user: user, app_password: password } = instance.connection ?? {};
  const page = await eventually('the page', 15_000, async () => {
    const got = await curlApp(caFile, `${url}/`, '--user', `${user}:${password}`);
    return got.status === '200' ? got : undefined;
  });
  expect(page.body).toBe('org/small on 2\n');
  expect((await stack.ssh(instance).run('echo $HF_TOKEN')).stdout.toString()).toBe(`${TOKEN}\n`);
  // Database, its log, and the log of the control plane.
  const files = await capture(['grep', '-rlsF', TOKEN, join(stack.dir, 'cp')]);
  expect(files.stdout.toString()).toBe('');
});

test('a model that cannot fit is refused, and one that nobody knows is warned of', async () => {
  const { api } = stack.customer;
  const launch = (model: string) =>
    api.post(
      '/instances',
      { template_id: 'page', gpu_type: 'H100_SXM', gpu_count: 1, tier: 'on_demand', env: { MODEL: model } },
      Operation,
    );
  await expect(launch('org/large')).rejects.toThrow(
    '422 model_too_large: The weights of org/large take 90 GB, more than the 80 GB of VRAM of 1 x H100_SXM',
  );
  const accepted = await launch('org/private');
  expect(accepted.warnings).toEqual([
    expect.stringContaining('org/private does not exist on the model hub, or is private'),
  ]);
  await followOperation(api, accepted.operation_id);
});

test('a launch that names nothing gets the default environment, which stays up to be logged in to', async () => {
  const { instance } = await rent({ gpu_type: 'H100_SXM' });
  expect(instance.image).toBeUndefined();
  const { stdout } = await stack.ssh(instance).run('ps | grep "[s]leep infinity" | wc -l');
  expect(Number(stdout.toString())).toBeGreaterThan(0);
  expect((await stack.customer.api.get(`/instances/${instance.id}`, Instance)).status_reason).toBeUndefined();
});

test('anybody can read what there is', async () => {
  const templates = await stack.customer.api.get('/templates', pageSchema(Template));
  expect(templates.data.map(({ id, primary_port: port }) => [id, port])).toEqual([['page', 8000]]);
  const environments = await stack.customer.api.get('/environments', Environments);
  expect(environments).toEqual({
    frameworks: [],
    versions: {},
    includes: { base: { cuda124: [{ name: 'busybox' }] } },
    vm_images: {},
  });
});
