// The stage of a gateway bench: a model server, the real control plane and the peers in front of it, and a customer, each its own process.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startControlPlane } from '../../kit/control-plane.ts';
import { openAccount } from '../../kit/stack.ts';
import { type Side, startSide } from '../side.ts';
import { startProxy } from '../nginx.ts';
import { portkeyHeaders, startPortkey } from './portkey.ts';

export const MODEL = 'bench/chat';
/** How a chat reaches the model server. */
export type Way = 'direct' | 'nginx' | 'bare Node' | 'Portkey' | 'gateway';

export interface Stage {
  /** The folder is on the disk of the service's database. */
  dir: string;
  origins: Record<Way, string>;
  /** The process that carries the chats of each way. */
  pids: Record<Way, number>;
  /** Sent with each chat, because one peer needs them. */
  headers: Record<string, string>;
  client: Side;
  /** API key of the customer. */
  key: string;
  close(): Promise<void>;
}

const CLIENT = new URL('../api/client.ts', import.meta.url);
const MODEL_SERVER = new URL('./model-server.ts', import.meta.url);
const BARE_PROXY = new URL('./bare-proxy.ts', import.meta.url);
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
    const direct = `http://127.0.0.1:${port}`;
    const peers = await startPeers(dir, direct, undo);
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
    const gateway = new URL(controlPlane.baseUrl).origin;
    return {
      dir,
      origins: { ...peers.origins, direct, gateway },
      pids: { ...peers.pids, direct: server.pid, gateway: controlPlane.daemon.pid() },
      headers: portkeyHeaders(port),
      client,
      key: account.key,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

type Peer = Exclude<Way, 'direct' | 'gateway'>;

async function startPeers(
  dir: string,
  upstream: string,
  undo: (() => Promise<unknown>)[],
): Promise<{ origins: Record<Peer, string>; pids: Record<Peer, number> }> {
  const nginx = await startProxy(join(dir, 'nginx'), upstream);
  undo.push(nginx.stop);
  const portkey = await startPortkey(dir);
  undo.push(portkey.stop);
  const bare = await startSide(BARE_PROXY);
  undo.push(() => bare.stop());
  const { port = 0 } = await bare.ask({ kind: 'serve', upstream });
  return {
    origins: { nginx: nginx.origin, Portkey: portkey.origin, 'bare Node': `http://127.0.0.1:${port}` },
    pids: { nginx: nginx.pid, Portkey: portkey.pid, 'bare Node': bare.pid },
  };
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
