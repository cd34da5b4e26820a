// The demo's walk through the service, step by step: a supplier brings a machine, a customer rents it, uses it and pays.
import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { Balance, UsageRow } from '../../shared/api/billing.ts';
import { CommunitySupplier, CommunityEarnings } from '../../shared/api/community.ts';
import { Instance } from '../../shared/api/instance.ts';
import { Operation } from '../../shared/api/operation.ts';
import { pageSchema } from '../../shared/api/page.ts';
import type { PricingRow } from '../../shared/api/pricing.ts';
import type { AgentHost, GpuOptions } from '../kit/agent-host.ts';
import { followOperation } from '../kit/api-client.ts';
import { busyboxImage } from '../kit/images.ts';
import { eventually } from '../kit/processes.ts';
import { openSshClient, type SshClient } from '../kit/ssh-client.ts';
import {
  addHost,
  openCustomer,
  openSupplier,
  registerMachine,
  verifyLedger,
  waitForOffering,
  type Account,
  type Customer,
  type Stack,
} from '../kit/stack.ts';
import { chat, deployModel, endReplica, GPUS_RENTED } from './chat.ts';
import type { DemoGpus } from './gpus.ts';
import type { DemoModel } from './model.ts';
import type { Show } from './show.ts';

/** Far above market prices, so that a few seconds cost cents. */
const DOLLARS_PER_GPU_HOUR = 36;
/** What the rental has cost before it is ended. */
const CENTS_TO_SEE = 6;
/** Random bytes in the image, so that its pull takes a moment and shows progress. */
const WEIGHTS_BYTES = 48 * 1024 ** 2;

export interface Rented {
  image: string;
  customer: Customer;
  offering: PricingRow;
}

/** Throws StepFailed at the first step that does not hold. */
export async function walk(show: Show, stack: Stack, gpus: DemoGpus, model: DemoModel): Promise<Rented> {
  const image = await show.step('Image', async () => {
    const { ref } = await busyboxImage(stack.registry, {
      name: 'demo',
      ...gpus.image,
      files: { ...gpus.image.files, 'model/weights.bin': randomBytes(WEIGHTS_BYTES) },
    });
    return { value: ref, result: `${ref} is in the registry` };
  });
  const { supplier, offering } = await bringMachine(show, stack, gpus);
  const { customer, prepaid } = await show.step('SSH key', async () => {
    const made = await openCustomer(stack, 'customer');
    const { balance } = await made.api.get('/balance', Balance);
    const value = { customer: made, prepaid: Number(balance) };
    return { value, result: `${made.sshKeyId} registered; the customer has prepaid $${balance}` };
  });
  const instance = await rent(show, customer, { image, offering });
  await use(show, customer, instance);
  // While the rental costs enough to be seen.
  const name = await deployModel(show, stack, { model, gpus, offering });
  const chatCost = await chat(show, stack.controlPlane.baseUrl, customer, { ...model, name });
  await endReplica(show, stack, name);
  await watchUsage(show, customer, instance);
  await pay(show, stack, { customer, supplier, instance, balanceForIt: prepaid - chatCost });
  return { image, customer, offering };
}

async function bringMachine(
  show: Show,
  stack: Stack,
  gpus: GpuOptions,
): Promise<{ supplier: Account; offering: PricingRow }> {
  const { controlPlane } = stack;
  const supplier = await openSupplier(controlPlane, 'supplier');
  const machine = await show.step('Machine registered', async () => {
    const made = await registerMachine(supplier, DOLLARS_PER_GPU_HOUR);
    return { value: made, result: `${made.machineId}, with a one-time enrolment token` };
  });
  await show.step('Machine enrolled', async () => {
    const host = addHost(stack, gpus);
    await enroll(host, controlPlane.agentUrl, machine.token);
    await host.daemon.start();
    return { value: undefined, result: 'it made its key, spent the token and keeps a link to the control plane' };
  });
  const offering = await show.step('Offering listed', async () => {
    await controlPlane.operator('admin', 'machine', 'approve', machine.machineId);
    const row = await waitForOffering(controlPlane);
    const price = `$${row.price_per_hour.toFixed(2)} per GPU and hour`;
    return {
      value: row,
      result: `the operator approved it; GET /v1/pricing: ${row.available} x ${row.gpu_type}, ${price}`,
    };
  });
  return { supplier, offering };
}

async function enroll(host: AgentHost, url: string, token: string): Promise<void> {
  const { code, stderr } = await host.enroll(url, token);
  if (code !== 0) throw new Error(`svc-agent enroll ended with ${code}: ${stderr.trim()}`);
}

async function rent(
  show: Show,
  customer: Customer,
  { image, offering }: { image: string; offering: PricingRow },
): Promise<Instance> {
  const { api, sshKeyId } = customer;
  const { operation_id: operationId } = await show.step('POST /v1/instances', async () => {
    const gpuCount = Math.min(GPUS_RENTED, offering.available);
    const request = { gpu_type: offering.gpu_type, gpu_count: gpuCount, tier: 'on_demand', image };
    const value = await api.post('/instances', { ...request, ssh_key_ids: [sshKeyId] }, Operation);
    return { value, result: `${gpuCount} x ${offering.gpu_type}: operation ${value.operation_id} is ${value.state}` };
  });
  return show.step('Instance running', async (note) => {
    const operation = await followOperation(api, operationId, ({ state, progress }) => {
      note(progress === undefined ? state : `${state}: ${progress}`);
    });
    if (operation.state !== 'succeeded') {
      throw new Error(`the operation ${operation.state}: ${operation.error?.detail ?? 'no reason given'}`);
    }
    const value = await api.get(`/instances/${operation.resource_id ?? ''}`, Instance);
    return { value, result: `${value.id} at $${value.price_per_hour.toFixed(2)} an hour, billed from now on` };
  });
}

async function use(show: Show, customer: Customer, instance: Instance): Promise<void> {
  const ssh = openSshClient(instance, customer.identity);
  await show.step('nvidia-smi over ssh', async () => {
    const output = await said(ssh, 'nvidia-smi');
    const seen = output.split('\n').filter((line) => /^\|\s+\d+\s/.test(line)).length;
    if (seen !== instance.gpu_count) throw new Error(`it shows ${seen} GPUs, not ${instance.gpu_count}:\n${output}`);
    return { value: undefined, result: `${instance.connection?.ssh_command}, host key checked\n${output}` };
  });
  await show.step('hostname over ssh', async () => {
    const name = await said(ssh, 'hostname');
    if (name !== instance.id) throw new Error(`the host is called ${name}, not ${instance.id}`);
    return { value: undefined, result: name };
  });
}

async function watchUsage(show: Show, customer: Customer, instance: Instance): Promise<void> {
  await show.step('Usage and balance', async (note) => {
    const usage = await eventually('usage worth showing', 30_000, async () => {
      const row = await usageOf(customer, instance);
      note(`${row.gpu_seconds} GPU seconds, ${row.cost_cents} cents`);
      await new Promise((resolve) => setTimeout(resolve, 1000));
      return row.cost_cents >= CENTS_TO_SEE ? row : undefined;
    });
    const { balance, held_cents: heldCents } = await customer.api.get('/balance', Balance);
    const held = `$${(heldCents / 100).toFixed(2)} held for the running rental`;
    return {
      value: undefined,
      result: `${usage.gpu_seconds} GPU seconds cost ${usage.cost_cents} cents; balance $${balance}, ${held}`,
    };
  });
}

interface Parties {
  customer: Customer;
  supplier: Account;
  instance: Instance;
  /** What was prepaid less the cost of the chat, in dollars: all else that is taken is for the rental. */
  balanceForIt: number;
}

async function pay(show: Show, stack: Stack, { customer, supplier, instance, balanceForIt }: Parties): Promise<void> {
  const { api } = customer;
  await show.step('Instance deleted', async (note) => {
    const { operation_id: id } = await api.delete(`/instances/${instance.id}`, Operation);
    const { state } = await followOperation(api, id, (operation) => note(operation.state));
    if (state !== 'succeeded') throw new Error(`the operation ${state}`);
    await eventually('closed SSH port', 10_000, async () =>
      (await isOpen(instance.connection?.port)) ? undefined : true,
    );
    return { value: undefined, result: 'the container has stopped and its SSH port is closed' };
  });
  await show.step('Final bill', async () => {
    const usage = await usageOf(customer, instance);
    const after = await api.get('/balance', Balance);
    const paid = balanceForIt - Number(after.balance);
    // Differences of floating-point dollars are wrong in their last digits.
    if (Math.abs(paid - usage.cost) > 1e-6) throw new Error(`$${usage.cost} are billed, but $${paid} were taken`);
    const result = `${usage.gpu_seconds} GPU seconds, ${usage.cost_cents} cents; balance $${after.balance}, nothing held`;
    return { value: undefined, result };
  });
  await show.step('Supplier paid', async () => {
    const { supplier_id: id } = await supplier.api.get('/community/supplier', CommunitySupplier);
    const earned = await supplier.api.get('/community/earnings', CommunityEarnings);
    if (earned.unpaid_cents <= 0) throw new Error(`the supplier is owed ${earned.unpaid_cents} cents`);
    await stack.controlPlane.operator('admin', 'payout', 'create', '--supplier', id, '--reference', 'demo');
    const paid = await supplier.api.get('/community/earnings', CommunityEarnings);
    const open = paid.entries.filter((entry) => !entry.paid);
    if (paid.unpaid_cents !== 0 || open.length > 0) throw new Error(`${paid.unpaid_cents} cents are still owed`);
    return {
      value: undefined,
      result: `${paid.accrued_cents} cents, for the rental and the replica, less the platform's fee`,
    };
  });
  await show.step('ledger verify', async () => {
    await verifyLedger(stack.controlPlane);
    return { value: undefined, result: 'OK: every transfer adds up' };
  });
}

async function said(ssh: SshClient, command: string): Promise<string> {
  const { code, stdout, stderr } = await ssh.run(command, { timeoutMs: 20_000 });
  if (code !== 0) throw new Error(`ssh ${command} ended with ${code}: ${stderr.trim()}`);
  return stdout.toString().trim();
}

function isOpen(port: number | undefined): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port: port ?? 0 });
    socket.once('error', () => resolve(false));
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
  });
}

interface Usage {
  gpu_seconds: number;
  cost_cents: number;
  /** Exact, in dollars. */
  cost: number;
}

async function usageOf({ api }: Customer, instance: Instance): Promise<Usage> {
  const { data } = await api.get('/usage?bucket=month', pageSchema(UsageRow));
  const rows = data.filter((row) => row.instance_id === instance.id);
  const sum = (key: keyof Usage): number => rows.reduce((total, row) => total + Number(row[key]), 0);
  return { gpu_seconds: sum('gpu_seconds'), cost_cents: sum('cost_cents'), cost: sum('cost') };
}
