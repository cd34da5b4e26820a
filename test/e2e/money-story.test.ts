// The way of the money, with real processes and a real chain: a customer deposits, rents, loses a GPU for a while and is refunded; the supplier
// delists its machine meanwhile and is paid on the chain.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Bill } from '../../shared/api/bill.ts';
import { Balance, UsageRow } from '../../shared/api/billing.ts';
import { CommunityEarnings, CommunityMachineDelistResult } from '../../shared/api/community.ts';
import { Deposit } from '../../shared/api/deposit.ts';
import { InstanceEvent } from '../../shared/api/instance-journal.ts';
import { Instance } from '../../shared/api/instance.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { CommunityPayout, CommunityStatement, PayoutDestination } from '../../shared/api/payout.ts';
import { PricingRow } from '../../shared/api/pricing.ts';
import type { AgentHost } from '../kit/agent-host.ts';
import { launch, terminate } from '../kit/api-client.ts';
import { TEST_XPUB } from '../kit/deposits.ts';
import { type EvmChain, startEvmChain } from '../kit/evm-chain.ts';
import { busyboxImage } from '../kit/images.ts';
import { HOME } from '../kit/payees.ts';
import { eventually, runProgram } from '../kit/processes.ts';
import {
  type Account,
  addHost,
  openAccount,
  openStack,
  openSupplier,
  registerMachine,
  type Stack,
  verifyLedger,
  waitForOffering,
} from '../kit/stack.ts';

/** A watcher of a chain, or the agent's next reading of its GPUs. */
const READ_MS_MAX = 90_000;
const GPUS = 8;
const DOLLARS_PER_GPU_HOUR = 36;
const DEPOSIT_CENTS = 10_000;
const UNITS_PER_CENT = 10_000n;
const REFUND = '0.05';

const dir = mkdtempSync(join(tmpdir(), 'story-'));
const faults = join(dir, 'faults');
const GPU_ENV = { FAKE_GPU_COUNT: String(GPUS), FAKE_GPU_FAULTS: faults };
let chain: EvmChain;
let stack: Stack;
let host: AgentHost;
let supplier: Account & { supplierId: string };
let customer: Account;

beforeAll(async () => {
  chain = await startEvmChain(Date.now() - 60_000);
  const { usdc, usdt } = chain.tokens;
  const ethereum = { rpc_url: chain.url, contracts: { usdc, usdt }, screening_oracle: chain.oracle };
  const settings = () => ({
    deposits: { evm_xpub: TEST_XPUB, chains: { ethereum } },
    earnings_delay_hours: 0,
    payouts: { every: 'day', minimum: 0 },
  });
  stack = await openStack({ gpus: { env: GPU_ENV }, settings });
  host = addHost(stack, { env: GPU_ENV });
  customer = await openAccount(
    stack.controlPlane,
    'customer',
    'deposits:read,deposits:write,billing:read,instances:read,instances:write',
  );
});
afterAll(async () => {
  expect(await stack.stop()).toEqual([]);
  await chain.close();
  rmSync(dir, { recursive: true });
});

/** A supplier registers, names where it is paid, enrols a machine, and is listed. */
async function supply(): Promise<string> {
  supplier = await openSupplier(stack.controlPlane, 'supplier');
  const home = { chain: 'ethereum', address: HOME };
  const named = await supplier.api.put('/community/payout-destination', home, PayoutDestination);
  expect(named).toMatchObject({ destination: home, pending: null });
  const { machineId, token } = await registerMachine(supplier, DOLLARS_PER_GPU_HOUR);
  expect((await host.enroll(stack.controlPlane.agentUrl, token)).code).toBe(0);
  await host.daemon.start();
  await stack.controlPlane.operator('admin', 'machine', 'approve', machineId);
  expect(await waitForOffering(stack.controlPlane)).toMatchObject({ available: GPUS });
  return machineId;
}

/** A customer pays tokens on the chain, and they are on its balance. */
async function deposit(): Promise<void> {
  const request = { asset: 'usdc', chain: 'ethereum', amount_usd_cents: DEPOSIT_CENTS };
  const { deposit_id: id, pay_address: to } = await eventually('chain that is read', READ_MS_MAX, () =>
    customer.api.post('/deposits', request, Deposit).catch(() => undefined),
  );
  await chain.pay(to, BigInt(DEPOSIT_CENTS) * UNITS_PER_CENT, Date.now());
  await chain.finalize(Date.now());
  await eventually('credit', READ_MS_MAX, async () =>
    (await customer.api.get(`/deposits/${id}`, Deposit)).status === 'credited' ? true : undefined,
  );
  expect(await customer.api.get('/balance', Balance)).toMatchObject({ balance_cents: DEPOSIT_CENTS });
}

/** The instance says why it is not charged, or nothing if it is. */
async function becomes(id: string, isCharged: boolean): Promise<void> {
  // The agent reads its GPUs twice when it starts.
  await host.daemon.stop('SIGTERM');
  await host.daemon.start();
  await eventually(isCharged ? 'charge' : 'credit', READ_MS_MAX, async () => {
    const { status_reason: reason } = await customer.api.get(`/instances/${id}`, Instance);
    return (reason === undefined) === isCharged ? true : undefined;
  });
}

/** The instance loses a GPU for a while. Its machine is delisted meanwhile, and ends with the instance. */
async function rent(machineId: string): Promise<string> {
  const image = await busyboxImage(stack.registry);
  const request = { gpu_type: 'H100_SXM', gpu_count: GPUS, tier: 'on_demand', image: image.ref } as const;
  const { id } = await launch(customer.api, request);
  // All GPUs are rented.
  const list = await runProgram({ command: 'test/kit/gpu/nvidia-smi', args: ['-L'], env: GPU_ENV });
  const [uuid = ''] = /GPU-[0-9a-f-]+/.exec(list) ?? [];
  writeFileSync(faults, `${uuid},lost\n`);
  await becomes(id, false);
  const { api } = supplier;
  const delist = () => api.delete(`/community/machines/${machineId}`, CommunityMachineDelistResult);
  expect(await delist()).toMatchObject({ status: 'draining' });
  expect((await customer.api.get('/pricing', pageSchema(PricingRow))).data).toEqual([]);
  writeFileSync(faults, '');
  await becomes(id, true);
  await terminate(customer.api, id);
  await eventually('delisted machine', READ_MS_MAX, async () =>
    (await delist()).status === 'delisted' ? true : undefined,
  );
  return id;
}

/** The time in which a GPU was lost is not charged. */
async function expectCredit(id: string): Promise<void> {
  const { data: events } = await customer.api.get(`/instances/${id}/events`, pageSchema(InstanceEvent));
  const at = (type: string): number => {
    const event = events.find((each) => each.type === `instance.${type}`);
    return Date.parse(event?.since ?? event?.created_at ?? '') / 1000;
  };
  const { data: usage } = await customer.api.get('/usage?bucket=month', pageSchema(UsageRow));
  const [charged = 0] = usage.map(({ gpu_seconds: seconds }) => seconds / GPUS);
  const freeSeconds = at('gpu_mended') - at('gpu_broken');
  expect(freeSeconds).toBeGreaterThan(0);
  expect(charged).toBeGreaterThan(0);
  // Times of events and of usage are rounded.
  expect(charged).toBeLessThanOrEqual(at('terminated') - at('running') - freeSeconds + 1);
}

/** What the customer reads of its month. Each amount is exact. */
async function expectBill(instanceId: string): Promise<void> {
  const bill = await customer.api.get('/bill', Bill);
  expect(bill.totals.map(({ section }) => section)).toEqual(['rental', 'refund', 'deposit']);
  expect(bill.lines).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ section: 'refund', subject_id: instanceId, amount: REFUND }),
      expect.objectContaining({ section: 'deposit', amount: '100.00' }),
    ]),
  );
  const { balance, held_cents: held } = await customer.api.get('/balance', Balance);
  expect(held).toBe(0);
  expect(Number(balance)).toBeCloseTo(Number(bill.closing_balance), 2);
  expect(Number(bill.closing_balance)).toBeLessThan(DEPOSIT_CENTS / 100);
}

/** The payout is due, sent on the chain by the operator, and entered as paid. */
async function payOut(): Promise<void> {
  const { daemon, operator } = stack.controlPlane;
  // The loop that makes payouts runs once an hour, and first when the process starts.
  await daemon.stop();
  await daemon.start();
  const payouts = async () => (await supplier.api.get('/community/payouts', pageSchema(CommunityPayout))).data;
  const [due] = await eventually('payout', READ_MS_MAX, async () => {
    const all = await payouts();
    return all.length === 0 ? undefined : all;
  });
  expect(due).toMatchObject({ status: 'due' });
  await operator('admin', 'payout', 'export', '--batch', 'first');
  const [flying] = await payouts();
  expect(flying).toMatchObject({ status: 'in_flight', amount_cents: due?.amount_cents });
  const { address = '' } = flying?.destination ?? {};
  const hash = await chain.pay(address, BigInt(due?.amount_cents ?? 0) * UNITS_PER_CENT, Date.now());
  await operator('admin', 'payout', 'sent', due?.payout_id ?? '', '--reference', hash);
  expect(await payouts()).toMatchObject([{ status: 'paid', reference: hash, destination: { address: HOME } }]);

  const { accrued_cents: accrued, unpaid_cents: unpaid } = await supplier.api.get(
    '/community/earnings',
    CommunityEarnings,
  );
  expect([accrued, unpaid]).toEqual([due?.amount_cents, 0]);
  const statement = await supplier.api.get('/community/statement', CommunityStatement);
  expect(statement.totals.map(({ section }) => section)).toEqual(['earning', 'claw_back', 'payout']);
  // Less than a cent waits for the next payout.
  expect(Number(statement.closing_balance)).toBeGreaterThanOrEqual(0);
  expect(Number(statement.closing_balance)).toBeLessThan(0.01);
}

test('a deposit is rented for, partly refunded, and what the supplier has earned is paid on the chain', async () => {
  const [machineId] = await Promise.all([supply(), deposit()]);
  const id = await rent(machineId);
  const named = ['--reference', 'ticket 7', '--reason', 'a slow disk'];
  await stack.controlPlane.operator('admin', 'refund', id, '--usd', REFUND, ...named);
  await expectCredit(id);
  await expectBill(id);
  await payOut();
  await verifyLedger(stack.controlPlane);
});
