// A deposit with the real control plane and a real chain: seen by one process, credited by the next.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Balance } from '../../shared/api/billing.ts';
import { Deposit } from '../../shared/api/deposit.ts';
import { type ControlPlane, startControlPlane } from '../kit/control-plane.ts';
import { TEST_XPUB } from '../kit/deposits.ts';
import { type EvmChain, startEvmChain } from '../kit/evm-chain.ts';
import { eventually } from '../kit/processes.ts';
import { type Account, openAccount, verifyLedger } from '../kit/stack.ts';

/** Two ticks of a watcher. */
const TICKS_MS = 30_000;

const dir = mkdtempSync(join(tmpdir(), 'dep-'));
let chain: EvmChain;
let controlPlane: ControlPlane;
let customer: Account;
beforeAll(async () => {
  chain = await startEvmChain(Date.now() - 60_000);
  const { usdc, usdt } = chain.tokens;
  const ethereum = { rpc_url: chain.url, contracts: { usdc, usdt }, screening_oracle: chain.oracle };
  const deposits = { evm_xpub: TEST_XPUB, chains: { ethereum } };
  const around = { postgresUrl: undefined, registries: [], authority: undefined, settings: { deposits } };
  controlPlane = await startControlPlane(join(dir, 'cp'), around);
  customer = await openAccount(controlPlane, 'payer', 'deposits:read,deposits:write,billing:read');
});
afterAll(async () => {
  await controlPlane.daemon.stop();
  await chain.close();
  rmSync(dir, { recursive: true });
});

const statusIs = (id: string, status: Deposit['status']): Promise<Deposit> =>
  eventually(`deposit that is ${status}`, TICKS_MS, async () => {
    const deposit = await customer.api.get(`/deposits/${id}`, Deposit);
    return deposit.status === status ? deposit : undefined;
  });

test('a deposit is seen, outlives its process and is credited by the next one', async () => {
  const request = { asset: 'usdc', chain: 'ethereum', amount_usd_cents: 2_500 };
  const { deposit_id: id, pay_address: to } = await eventually('chain that is read', TICKS_MS, () =>
    customer.api.post('/deposits', request, Deposit).catch(() => undefined),
  );
  const hash = await chain.pay(to, 25_000_000n, Date.now());
  expect(await statusIs(id, 'detected')).toMatchObject({ tx_hash: hash });
  await controlPlane.daemon.stop();
  await chain.finalize(Date.now());
  await controlPlane.daemon.start();
  expect(await statusIs(id, 'credited')).toMatchObject({ credited_cents: 2_500 });
  expect(await customer.api.get('/balance', Balance)).toMatchObject({ balance_cents: 2_500 });
  await verifyLedger(controlPlane);
});
