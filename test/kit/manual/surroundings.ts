// What stands around a reader of the documents: engine, registry, model servers, and a GPU host, in the places that the documents name.
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { openAgentHost } from '../agent-host.ts';
import { capture } from '../capture.ts';
import { chooseEngine } from '../engine.ts';
import { type Asked, type FakeAnswer, HELLO, openFakeUpstream } from '../fake-upstream.ts';
import { busyboxImage, type TestImage } from '../images.ts';
import { cleanUp } from '../leaks.ts';
import { freePort, freePorts } from '../ports.ts';
import { LOGIN, startRegistry } from '../registry.ts';
import { requireProgram } from '../setup.ts';
import { HELLO_EVENTS } from '../stream-chunks.ts';
import { openVideoServer } from '../video-server.ts';
import { readPages, yamlOf } from './documents.ts';
import type { ReaderOptions } from './reader.ts';

export interface Surroundings {
  dir: string;
  /** The address of the control plane that the reader starts. */
  baseUrl: string;
  /** What a reader needs of it, all but the values of placeholders. */
  reader: Omit<ReaderOptions, 'placeholders'>;
  /** Ends all of it, and returns what was left over that should not have been. */
  stop(): Promise<string[]>;
}

const ROOT = resolve(import.meta.dirname, '../../..');
const SSH_PORTS = 24;
const GPUS = { env: { FAKE_GPU_COUNT: '8' } };

export async function openSurroundings(): Promise<Surroundings> {
  const dir = mkdtempSync(join(tmpdir(), 'man-'));
  chmodSync(dir, 0o755); // users inside containers reach their holder below it
  const undo: (() => Promise<unknown>)[] = [];
  const stop = async (): Promise<string[]> => {
    while (undo.length > 0) await undo.pop()?.();
    return cleanUp({ id: dir, dir });
  };
  try {
    const registry = await startRegistry();
    undo.push(registry.stop);
    const guarded = await registry.guarded({ kind: 'basic' });
    undo.push(guarded.stop);
    const engine = await chooseEngine({ dir: mkdtempSync(join(dir, 'engine-')), env: GPUS.env, simulatesGpus: true });
    undo.push(engine.stop);
    const [port, appPort, sshPorts] = [await freePort(), await freePort(), await freePorts(SSH_PORTS)];
    for (const open of [registry.port, guarded.port, port]) await engine.letThrough(open);
    const image = await busyboxImage(registry);
    const { models, close } = await openModels(dir);
    undo.push(close);
    const inside = engine.isPrivate ? { inside: engine.inside } : {};
    const host = openAgentHost({ dir: join(dir, 'a'), dockerSocket: engine.socketPath, gpus: GPUS, ...inside });
    undo.push(host.stop);
    const bare = ['env', 'FAKE_GPU_COUNT=8', process.execPath, join(ROOT, 'agent/svc-agent.js')];
    const agent = inside.inside?.(bare) ?? bare;
    const settings = settingsOf(dir, { registries: [registry.host, guarded.host], appPort, models, image });
    const elsewhere = [
      ...placesOf(join(dir, 'home'), port),
      ...imagesOf(image, registry.host, guarded.host),
      ['first: 20000, last: 29999', `first: ${sshPorts.first}, last: ${sshPorts.last}`],
      // The rest of what a configuration for this machine needs, at the end of the one that the README writes down.
      ['\nYAML', `\n${yamlLines(settings)}\nYAML`],
      // A price at which some seconds cost cents.
      ['"price_per_hour":2.5}', '"price_per_hour":36}'],
    ] as const;
    const baseUrl = `http://127.0.0.1:${port}/v1`;
    return {
      dir,
      baseUrl,
      reader: {
        dir,
        elsewhere,
        programs: {
          ...programsOf(join(dir, 'home')),
          'svc-agent': `command=$1\nshift\nexec ${agent.join(' ')} "$command" --config ${host.configPath} "$@"`,
          nft: `exec ${[...(inside.inside?.([]) ?? []), requireProgram('nft')].join(' ')} "$@"`,
        },
        daemons: [
          { command: / serve$/, name: 'control-plane', ready: () => answersWell(baseUrl.replace('/v1', '/readyz')) },
          {
            command: /svc-agent .*run$/,
            name: 'agent',
            ready: () => isLinked([...agent, 'status', '--config', host.configPath]),
          },
        ],
      },
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

interface Here {
  registries: readonly string[];
  appPort: number;
  /** The operator's file. */
  models: string;
  image: TestImage;
}

/** Settings that this machine needs beside those of the README. */
function settingsOf(dir: string, { registries, appPort, models, image }: Here): object {
  return {
    images: { private_registries: registries.map((host) => ({ host, plain_http: true })) },
    apps: { domain: 'apps.localhost', listen: { host: '127.0.0.1', port: appPort }, public_port: appPort },
    disk_reserve: { percent: 0, gib: 0 },
    earnings_delay_hours: 0,
    model_hub_url: 'http://127.0.0.1:9/api',
    models_file: models,
    ...cataloguesOf(dir, image),
  };
}

/** The images that the documents name, and what stands for them here. */
function imagesOf({ ref }: TestImage, open: string, guarded: string): [string, string][] {
  return [
    ['nvidia/cuda:12.4.1-base-ubuntu22.04', ref],
    ['"registry":"ghcr.io","username":"me"', `"registry":"${guarded}","username":"${LOGIN.username}"`],
    ['ghcr.io/acme/train:1', ref.replace(open, guarded)],
  ];
}

/** The files and addresses that the documents name, and where they are here. */
function placesOf(home: string, port: number): [string, string][] {
  return [
    ['127.0.0.1:8080', `127.0.0.1:${port}`],
    ['port: 8080', `port: ${port}`],
    ['https://api.example.com/v1', `http://127.0.0.1:${port}/v1`],
    ['/run/svc-control-plane/admin.sock', join(home, 'gpu-tour/admin.sock')],
    ['@ssh.example.com', '@127.0.0.1'],
    ['/var/backups/', `${home}/`],
  ];
}

/** Programs as a reader has them: ours are those of this checkout, and those of OpenSSH know no key or host but the reader's. */
function programsOf(home: string): Record<string, string> {
  const ssh = ['StrictHostKeyChecking=accept-new', `UserKnownHostsFile=${home}/.ssh/known_hosts`, 'BatchMode=yes'];
  const options = `-F none -i ${home}/.ssh/id_ed25519 ${ssh.map((option) => `-o ${option}`).join(' ')}`;
  const folder = dirname(requireProgram('ssh'));
  const openSsh = ['ssh', 'scp', 'sftp'].map((name) => [name, `exec ${folder}/${name} ${options} "$@"`]);
  const controlPlane = [process.execPath, join(ROOT, 'control-plane/svc-control-plane.js')];
  return {
    ...Object.fromEntries(openSsh),
    // A refusal is a failure.
    curl: `exec ${requireProgram('curl')} --fail-with-body -sS "$@"`,
    // `npm run [-s] <program> -- <arguments>`
    npm: '[ "$2" = -s ] && shift\nprogram=$2\nshift 3\nexec "$program" "$@"',
    // The reader is signed in with the key of the examples.
    svc: `export SVC_BASE_URL="$API" SVC_API_KEY="\${AUTH#*Bearer }"\nexec ${process.execPath} ${join(ROOT, 'control-plane/svc.js')} "$@"`,
    // A package installs the configuration. Here it is the reader's own.
    'svc-control-plane': `export SVC_CONFIG=${home}/gpu-tour/control-plane.yaml\nexec ${controlPlane.join(' ')} "$@"`,
  };
}

/** The models of the manual's example, answered by servers of ours; returns the operator's file. */
async function openModels(dir: string): Promise<{ models: string; close: () => Promise<void> }> {
  const server = await openFakeUpstream();
  server.usual = answerOf;
  const videos = [await openVideoServer('vllm_omni'), await openVideoServer('sglang')] as const;
  for (const each of videos) each.usual = { status: 'completed', progress: 100 };
  const keyFile = join(dir, 'models.key');
  writeFileSync(keyFile, 'sk-1\n');
  const text = exampleOf('models.yaml')
    .replaceAll('http://10.0.0.8:8000/v1', videos[0].baseUrl)
    .replaceAll('http://10.0.0.9:30000/v1', videos[1].baseUrl)
    .replaceAll(/http:\/\/10\.0\.0\.\d:\d+\/v1|https:\/\/models\.example\.com\/v1/g, server.baseUrl)
    .replaceAll('/etc/svc-control-plane/models.key', keyFile);
  const models = join(dir, 'models.yaml');
  writeFileSync(models, text);
  return {
    models,
    close: async () => {
      await Promise.all([server, ...videos].map((each) => each.close()));
    },
  };
}

function answerOf({ path, body }: Asked): FakeAnswer {
  if (path.endsWith('/embeddings')) {
    const data = [body['input']].flat().map((_text, index) => ({ object: 'embedding', index, embedding: [0.5, -0.5] }));
    return { body: { object: 'list', model: 'e5', data, usage: { prompt_tokens: 4, total_tokens: 4 } } };
  }
  if (path.endsWith('/images/generations')) {
    return { body: { created: 1, data: [{ b64_json: Buffer.from('a picture').toString('base64') }] } };
  }
  return body['stream'] === true ? { events: HELLO_EVENTS } : { body: HELLO };
}

/** The manual's examples of templates and environments, with an image that is here. */
function cataloguesOf(dir: string, { ref }: TestImage): { templates_file: string; environments_file: string } {
  const [templates, environments] = [join(dir, 'templates.yaml'), join(dir, 'environments.yaml')];
  writeFileSync(templates, exampleOf('templates.yaml').replaceAll(/image: \S+/g, `image: '${ref}'`));
  writeFileSync(environments, exampleOf('environments.yaml').replaceAll(/image: '[^']+'/g, `image: '${ref}'`));
  return { templates_file: templates, environments_file: environments };
}

function exampleOf(file: string): string {
  const [block] = yamlOf(readPages(), file);
  if (block === undefined) throw new Error(`the manual has no example of ${file}`);
  return block.text;
}

/** JSON is YAML. */
function yamlLines(settings: object): string {
  return Object.entries(settings)
    .map(([key, value]) => `${key}: ${JSON.stringify(value)}`)
    .join('\n');
}

function answersWell(url: string): Promise<boolean> {
  return new Promise((resolvePromise) => {
    const asked = get(url, { agent: false, signal: AbortSignal.timeout(1000) }, (response) => {
      response.resume();
      resolvePromise(response.statusCode === 200);
    });
    asked.once('error', () => resolvePromise(false));
  });
}

/** The exit code tells of more than the link. */
async function isLinked(argv: readonly string[]): Promise<boolean> {
  const { stdout } = await capture(argv);
  return stdout.toString().includes('link: up');
}
