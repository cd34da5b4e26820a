// Deposits without a chain: settings whose node is nowhere, a chain that was read, and a deposit that waits.
import { readAddressKey } from '../../control-plane/money/deposits/evm-addresses.ts';
import type { DepositSettings } from '../../control-plane/money/deposits/settings.ts';
import { insertDeposit } from '../../control-plane/money/deposits/store.ts';
import { CHAINS } from '../../control-plane/money/deposits/chains.ts';
import type { DepositChain } from '../../shared/api/deposit.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import type { World } from './world.ts';

const MINUTE_MS = 60_000;

/** Of m/44'/60'/0'/0 of the well-known phrase "test test ... junk". Everybody knows its private keys. */
export const TEST_XPUB =
  'xpub6DyUKdwoLWmUJ4Tn9Bbsdtx7B5Ws18mEN19e5HT52ikE53FiUheSQXrZUNPovqfyKmw4579A1Mm3GXXKM39N64uooBfJ4tNAzFsEbodRTx4';

/** Takes 10 to 100,000 dollars within an hour, on these chains. */
export function depositSettingsOf(chains: DepositSettings['chains']): DepositSettings {
  return {
    evmKey: readAddressKey(TEST_XPUB),
    centsMin: 1_000,
    centsMax: 10_000_000,
    expiryMs: 60 * MINUTE_MS,
    toleranceUnits: 0n,
    openPerOrgMax: 20,
    chains,
  };
}

/** Nothing answers at the node. */
export function offlineDeposits(chains: readonly DepositChain[] = ['ethereum', 'base']): DepositSettings {
  const offline = chains.map((chain) => {
    const { contracts } = CHAINS[chain];
    const settings = { rpcUrl: 'http://127.0.0.1:9', second: null, finality: 'finalized', oracle: null } as const;
    return [chain, { ...settings, contracts, blocksPerQuery: 500 }] as const;
  });
  return depositSettingsOf(new Map(offline));
}

/** As if its watcher had read the chain up to now. */
export async function noteRead({ db, clock }: World, chain: DepositChain): Promise<void> {
  const nowMs = clock.now();
  await db.tx('test.read', (tx) =>
    tx.run(
      sql`insert into deposit_chains (id, head_number, head_ms, final_number, final_hash, final_ms, updated_ms)
          values (${chain}, 9, ${nowMs}, 5, '0x5', ${nowMs}, ${nowMs})`,
    ),
  );
}

/** A deposit that waits for tokens. Returns its id. */
export async function addDeposit(
  { db, clock }: World,
  id: string,
  orgId: string,
  address = `0x${id}`,
): Promise<string> {
  const nowMs = clock.now();
  const waiting = { status: 'created', chain: 'base', asset: 'usdc', family: 'evm', position: 0 } as const;
  const amount = { amount_cents: 2_500, due_units: 25_000_000n, credited_units: null, credited_cents: null };
  const times = {
    created_ms: nowMs,
    expires_ms: nowMs + 60 * MINUTE_MS,
    watched_until_ms: nowMs + 60 * MINUTE_MS,
    due_ms: null,
  };
  const row = { id, org_id: orgId, address, tx_hash: null, note: null, ...waiting, ...amount, ...times };
  await db.tx('test.deposit', (tx) => insertDeposit(tx, row));
  return id;
}
