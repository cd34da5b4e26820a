// A stack with one machine on offer and one customer, for e2e tests; at its end the books agree and nothing is left.
import { existsSync } from 'node:fs';
import { Instance, type CreateInstance } from '../../shared/api/instance.ts';
import { pageSchema } from '../../shared/api/page.ts';
import type { AgentHost } from './agent-host.ts';
import { launch, terminate } from './api-client.ts';
import { engineContents, withoutSpare } from './engine.ts';
import { busyboxImage, type TestImage } from './images.ts';
import { eventually } from './processes.ts';
import { openSshClient, type SshClient } from './ssh-client.ts';
import {
  addHost,
  openCustomer,
  openStack,
  openSupplier,
  registerMachine,
  verifyLedger,
  waitForOffering,
  type Account,
  type Customer,
  type Stack,
  type StackOptions,
} from './stack.ts';

export interface RentalStack extends Stack {
  host: AgentHost;
  supplier: Account;
  customer: Customer;
  image: TestImage;
  /** A running instance with one GPU. */
  rent(request?: Partial<CreateInstance>): Promise<Instance>;
  ssh(instance: Instance): SshClient;
  /** Terminates what still runs, then returns what is wrong: books that do not agree, anything left on engine or machine. */
  end(): Promise<string[]>;
}

export const ONE_GPU = { gpu_type: 'H100_SXM', gpu_count: 1, tier: 'on_demand' } as const;
const GPUS = { env: { FAKE_GPU_COUNT: '8' } };
const DOLLARS_PER_GPU_HOUR = 36;
/** Enough for more than 24 hours of all GPUs, so that no test meets a warning of a low balance by chance. */
const BALANCE_DOLLARS = '10000';

export interface RentalStackOptions extends Omit<StackOptions, 'gpus'> {
  /** The scripted nvidia-smi of the host gets these variables. The engine's does not. */
  hostEnv?: Record<string, string>;
}

export async function openRentalStack(options: RentalStackOptions = {}): Promise<RentalStack> {
  const { hostEnv, ...stackOptions } = options;
  const stack = await openStack({ ...stackOptions, gpus: GPUS });
  try {
    const supplier = await openSupplier(stack.controlPlane, 'supplier');
    const { machineId, token } = await registerMachine(supplier, DOLLARS_PER_GPU_HOUR);
    const host = addHost(stack, { env: { ...GPUS.env, ...hostEnv } });
    const enrolled = await host.enroll(stack.controlPlane.agentUrl, token);
    if (enrolled.code !== 0) throw new Error(enrolled.stderr);
    await host.daemon.start();
    await stack.controlPlane.operator('admin', 'machine', 'approve', machineId);
    await waitForOffering(stack.controlPlane);
    const customer = await openCustomer(stack, 'customer', BALANCE_DOLLARS);
    const image = await busyboxImage(stack.registry);
    return {
      ...stack,
      host,
      supplier,
      customer,
      image,
      rent: (request) => launch(customer.api, { ...ONE_GPU, image: image.ref, ...request }),
      ssh: (instance) => openSshClient(instance, customer.identity),
      end: () => end(stack, host, customer),
    };
  } catch (error) {
    await stack.stop();
    throw error;
  }
}

async function end(stack: Stack, host: AgentHost, customer: Customer): Promise<string[]> {
  const wrong: string[] = [];
  const check = async (work: () => Promise<unknown>): Promise<void> => {
    await work().catch((error: unknown) => wrong.push(String(error)));
  };
  await check(async () => {
    const { data } = await customer.api.get('/instances?limit=200', pageSchema(Instance));
    const alive = data.filter(({ status }) => status !== 'terminated' && status !== 'stopped');
    for (const { id } of alive) await terminate(customer.api, id);
  });
  await check(() => verifyLedger(stack.controlPlane));
  await check(() => nothingRuns(stack, host));
  if (wrong.length > 0) {
    console.error(`control plane:\n${stack.controlPlane.daemon.logTail(50)}\nagent:\n${host.daemon.logTail(50)}`);
  }
  wrong.push(...(await stack.stop()));
  if (existsSync(stack.dir)) wrong.push(`${stack.dir} is still there`);
  return wrong;
}

/** If there are no instances, the agent leaves no holder, and nothing on the engine but the network that waits for the next one. */
async function nothingRuns(stack: Stack, host: AgentHost): Promise<void> {
  let left: string[] = [];
  await eventually('empty machine', 30_000, async () => {
    const contents = withoutSpare(await engineContents(stack.engine.docker));
    left = [...contents, ...host.holders().map((pid) => `holder ${pid}`)];
    return left.length === 0 ? true : undefined;
  }).catch(() => {
    throw new Error(`left on the machine: ${left.join('; ')}`);
  });
}
