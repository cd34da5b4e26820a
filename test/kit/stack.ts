// The whole service on one machine for demo and e2e tests: engine, registry, control plane, and a machine with simulated GPUs, all real.
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { NewApiKey, Org, SshKey } from '../../shared/api/account.ts';
import { CommunityMachineRegistration, CommunitySupplier } from '../../shared/api/community.ts';
import { PricingRow } from '../../shared/api/pricing.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { openAgentHost, type AgentHost, type GpuOptions } from './agent-host.ts';
import { openApiClient, type ApiClient } from './api-client.ts';
import type { Authority } from './certificate.ts';
import { startControlPlane, type ControlPlane } from './control-plane.ts';
import { chooseEngine, type Engine, type EngineOptions } from './engine.ts';
import { cleanUp } from './leaks.ts';
import { eventually } from './processes.ts';
import { startRegistry, type Guarded, type Registry } from './registry.ts';
import { makeIdentity, type SshIdentity } from './ssh-client.ts';

export interface Stack {
  /** Everything of the run lies below it; short, because unix sockets do too. */
  dir: string;
  engine: Engine;
  registry: Registry;
  /** The registry's images again, for those who log in. */
  guarded: Guarded;
  controlPlane: ControlPlane;
  /** PEM file of the API's authority, if it has one. */
  tlsCaFile: string | undefined;
  /** Machines added so far. */
  agents: AgentHost[];
  /** Ends all of it, also what is half dead, and returns what was left over that should not have been. */
  stop(): Promise<string[]>;
}

export interface Account {
  orgId: string;
  key: string;
  api: ApiClient;
}

export interface Customer extends Account {
  identity: SshIdentity;
  sshKeyId: string;
}

export interface StackOptions {
  gpus?: GpuOptions;
  /** Folder and storage driver of the engine; left out, its own below the run's folder. */
  engine?: EngineOptions;
  /** The control plane's database; left out, it is on SQLite. */
  postgresUrl?: string | undefined;
  /** Issues the API's certificate; left out, it speaks plain HTTP. */
  authority?: Authority;
  /** The host of the control plane's `base_url`; left out, 127.0.0.1. */
  hostname?: string;
  /** Further keys of the control plane's configuration, by the host of the registry and the folder of the run. */
  settings?: (registryHost: string, dir: string) => object;
  /** The beginning of the control plane's command line; left out, it is the one of this checkout. */
  controlPlaneProgram?: readonly string[];
}

const SUPPLIER_SCOPES = 'supply:read,supply:write';
const CUSTOMER_SCOPES = [
  'ssh_keys:read,ssh_keys:write,instances:read,instances:write,billing:read',
  'registry_credentials:read,registry_credentials:write,webhooks:read,webhooks:write',
  'serverless:read,serverless:write',
].join(',');

/** Engine, registry and control plane; no machine yet. What has been started when one of them fails is ended again. */
export async function openStack(options: StackOptions = {}): Promise<Stack> {
  const { gpus = { env: {} }, postgresUrl, authority, settings = () => ({}) } = options;
  const dir = mkdtempSync(join(tmpdir(), 'gpu-'));
  chmodSync(dir, 0o755); // users inside containers reach their endpoint below it
  const agents: AgentHost[] = [];
  const undo: (() => Promise<unknown>)[] = [];
  const stop = async (): Promise<string[]> => {
    await Promise.all(agents.map((agent) => agent.stop()));
    while (undo.length > 0) await undo.pop()?.();
    return cleanUp({ id: dir, dir });
  };
  try {
    const registry = await startRegistry();
    undo.push(() => registry.stop());
    // It starts beside the control plane.
    const starting = chooseEngine({
      dir: mkdtempSync(join(dir, 'engine-')),
      env: gpus.env,
      simulatesGpus: gpus.nvidiaSmi === undefined,
      ...options.engine,
    });
    const started = starting.catch(() => undefined);
    undo.push(async () => (await started)?.stop());
    const guarded = await registry.guarded({ kind: 'basic' });
    undo.push(() => guarded.stop());
    const tlsCaFile = authority === undefined ? undefined : writeAuthority(dir, authority);
    const controlPlane = await startControlPlane(join(dir, 'cp'), {
      postgresUrl,
      authority,
      hostname: options.hostname,
      registries: [registry.host, guarded.host],
      settings: settings(registry.host, dir),
      program: options.controlPlaneProgram,
    });
    undo.push(() => controlPlane.daemon.stop());
    const engine = await starting;
    const agentPort = Number(new URL(controlPlane.agentUrl).port);
    for (const port of [registry.port, guarded.port, agentPort]) await engine.letThrough(port);
    return { dir, engine, registry, guarded, controlPlane, tlsCaFile, agents, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function writeAuthority(dir: string, { cert }: Authority): string {
  const file = join(dir, 'ca.pem');
  writeFileSync(file, cert);
  return file;
}

/** A new organisation with an API key; `scopes` separated by commas. */
export async function openAccount({ operator, baseUrl }: ControlPlane, name: string, scopes: string): Promise<Account> {
  const org = Org.parse(await operator('admin', 'org', 'create', '--name', name));
  const made = await operator('admin', 'key', 'create', '--org', org.id, '--name', 'first', '--scopes', scopes);
  const { key } = NewApiKey.parse(made);
  return { orgId: org.id, key, api: openApiClient(baseUrl, key) };
}

/** An organisation that has registered as a supplier. */
export async function openSupplier(
  controlPlane: ControlPlane,
  name: string,
): Promise<Account & { supplierId: string }> {
  const account = await openAccount(controlPlane, name, SUPPLIER_SCOPES);
  const { supplier_id: supplierId } = await account.api.post('/community/supplier', undefined, CommunitySupplier);
  return { ...account, supplierId };
}

/** An organisation with a prepaid balance and one SSH key. */
export async function openCustomer(stack: Stack, name: string, dollars = '100'): Promise<Customer> {
  const account = await openAccount(stack.controlPlane, name, CUSTOMER_SCOPES);
  const credit = ['--org', account.orgId, '--usd', dollars, '--reference', `opening balance of ${name}`];
  await stack.controlPlane.operator('admin', 'balance', 'add', ...credit);
  const identity = await makeIdentity(join(stack.dir, 'ssh'), name);
  const { id } = await account.api.post('/ssh-keys', { name, public_key: identity.publicKey }, SshKey);
  return { ...account, identity, sshKeyId: id };
}

/** Registers a machine at a price per GPU and hour; its token is for `enroll`. */
export async function registerMachine(
  supplier: Account,
  dollarsPerHour: number,
): Promise<{ machineId: string; token: string }> {
  const body = { region: 'eu-west', price_per_hour: dollarsPerHour };
  const answer = await supplier.api.post('/community/machines', body, CommunityMachineRegistration);
  return { machineId: answer.machine.machine_id, token: answer.enrollment_token };
}

/** A host with an agent that is neither enrolled nor started; `program`: of another place than this checkout. */
export function addHost(stack: Stack, gpus: GpuOptions, program?: readonly string[]): AgentHost {
  const dir = join(stack.dir, `a${stack.agents.length}`);
  const { socketPath: dockerSocket, isPrivate, inside } = stack.engine;
  const network = isPrivate ? { inside } : {};
  const agent = openAgentHost({ dir, dockerSocket, gpus, tlsCaFile: stack.tlsCaFile, program, ...network });
  stack.agents.push(agent);
  return agent;
}

/** Waits until a machine's GPUs are on offer. */
export async function waitForOffering({ baseUrl }: ControlPlane): Promise<PricingRow> {
  const stranger = openApiClient(baseUrl);
  return eventually('offering in /v1/pricing', 20_000, async () => {
    const [row] = (await stranger.get('/pricing', pageSchema(PricingRow))).data;
    return row;
  });
}

/** What an operator reads if the books agree; throws what is wrong if they do not. */
export async function verifyLedger({ operator }: ControlPlane): Promise<void> {
  z.strictObject({ ok: z.literal(true), faults: z.array(z.string()).length(0) }).parse(
    await operator('ledger', 'verify'),
  );
}
