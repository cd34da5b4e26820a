// The stage of a gateway bench: a model server, nginx and the real control plane in front of it, and a customer, each its own process.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startControlPlane } from '../../kit/control-plane.ts';
import { openAccount } from '../../kit/stack.ts';
import { type Side, startSide } from '../side.ts';
import { startNginx } from './nginx.ts';

export const MODEL = 'bench/chat';
/** Upstream connections to the model server. */
export const WAYS = ['direct', 'nginx', 'gateway'] as const;
export type Way = (typeof WAYS)[number];

export interface Stage {
  /** On the disk of the service's database. */
  dir: string;
  origins: Record<Way, string>;
  client: Side;
  /** API key of the customer. */
  key: string;
  close(): Promise<void>;
}

const CLIENT = new URL('../api/client.ts', import.meta.url);
const MODEL_SERVER = new URL('./model-server.ts', import.meta.url);
const NO_LIMIT = 1_000_000;

export async function openStage(): Promise<Stage> {
  const dir = mkdtempSync(join(tmpdir(), 'bench-gw-'));
  const undo: (() => Promise<unknown>)[] = [];
  const close = async (): Promise<void> => {
    while (undo.length > 0) await undo.pop()?.();
    rmSync(dir, { recursive: true });
  };
  try {
    const server = await startSide(MODEL_SERVER);
    undo.push(() => server.stop());
    const { port = 0 } = await server.ask({ kind: 'serve' });
    const nginx = await startNginx(join(dir, 'nginx'), port);
    undo.push(nginx.stop);
    const controlPlane = await startControlPlane(join(dir, 'cp'), {
      postgresUrl: undefined,
      registries: [],
      authority: undefined,
      settings: { models_file: writeModels(dir, port), ...withoutLimits() },
    });
    undo.push(() => controlPlane.daemon.stop());
    const account = await openAccount(controlPlane, 'customer', 'serverless:write');
    const credit = ['--org', account.orgId, '--usd', '1000000', '--reference', 'bench'];
    await controlPlane.operator('admin', 'balance', 'add', ...credit);
    const client = await startSide(CLIENT);
    undo.push(() => client.stop());
    const origins = {
      direct: `http://127.0.0.1:${port}`,
      nginx: nginx.origin,
      gateway: new URL(controlPlane.baseUrl).origin,
    };
    return { dir, origins, client, key: account.key, close };
  } catch (error) {
    await close();
    throw error;
  }
}

function withoutLimits(): object {
  const common = ['per_key_per_second', 'per_ip_per_second', 'burst'];
  const inference = ['per_key_per_second', 'burst', 'per_org_per_second', 'burst_per_org'];
  const rates = [...common, ...inference.map((name) => `inference_${name}`)];
  return {
    rate_limits: Object.fromEntries(rates.map((name) => [name, NO_LIMIT])),
    open_inference_requests_per_key: NO_LIMIT,
    open_inference_requests_per_org: NO_LIMIT,
  };
}

function writeModels(dir: string, port: number): string {
  const model = {
    id: MODEL,
    modality: 'chat',
    owned_by: 'bench',
    context_length: 8_192,
    pricing: { input_per_1m_tokens_cents: 15, output_per_1m_tokens_cents: 60 },
    upstreams: [{ base_url: `http://127.0.0.1:${port}/v1`, model: 'm', engine: 'vllm', max_open_requests: 10_000 }],
  };
  const file = join(dir, 'models.yaml');
  // JSON is YAML.
  writeFileSync(file, JSON.stringify({ models: [model] }));
  return file;
}
