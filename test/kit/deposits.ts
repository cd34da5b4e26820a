// Deposits without a chain: settings whose node is nowhere, a chain that was read, a deposit that waits, and one that is paid.
import { readAddressKey } from '../../control-plane/money/deposits/chain-addresses.ts';
import type { ChainReader } from '../../control-plane/money/deposits/reader.ts';
import type { Verdict } from '../../control-plane/money/deposits/screening.ts';
import type { DepositSettings } from '../../control-plane/money/deposits/settings.ts';
import { driveDeposit, type StepDeps } from '../../control-plane/money/deposits/steps.ts';
import { type Deposit, findDeposit, insertDeposit, setDue } from '../../control-plane/money/deposits/store.ts';
import { transfersOf, upsertTransfer } from '../../control-plane/money/deposits/transfers-store.ts';
import { CHAINS } from '../../control-plane/money/deposits/chains.ts';
import type { DepositAsset, DepositChain } from '../../shared/api/deposit.ts';
import type { DepositState } from '../../shared/states.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import type { Rooms } from '../../control-plane/rooms.ts';
import type { Core } from '../../control-plane/settings.ts';
import type { World } from './world.ts';

const MINUTE_MS = 60_000;

/** The key of m/44'/60'/0'/0 of the well-known phrase "test test ... junk". Everybody knows its private keys. */
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

/** Does what the watcher does after it has read the chain up to a block of `finalMs`, by default of now. */
export async function noteRead(
  { db, clock }: Pick<Core, 'db' | 'clock'>,
  chain: DepositChain,
  finalMs: number = clock.now(),
): Promise<void> {
  const nowMs = clock.now();
  await db.tx('test.read', (tx) =>
    tx.run(
      sql`insert into deposit_chains (id, head_number, head_ms, final_number, final_hash, final_ms, updated_ms)
          values (${chain}, 9, ${finalMs}, 5, '0x5', ${finalMs}, ${nowMs})
          on conflict (id) do update set head_ms = ${finalMs}, final_ms = ${finalMs}, updated_ms = ${nowMs}`,
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

/** Tokens of the asset of the deposit, in the moment of its creation, unless it says otherwise. */
interface Payment {
  units: bigint;
  asset?: DepositAsset;
  ms?: number;
}

/** Does what the watcher does after it has seen these tokens at its address, in a final block. The deposit is due afterwards. */
export async function payDeposit(
  { db, clock }: Pick<Core, 'db' | 'clock'>,
  { id, chain, address, ...paid }: Deposit,
  { units, asset = paid.asset, ms = paid.created_ms }: Payment,
): Promise<void> {
  await db.tx('test.pay', async (tx) => {
    await tx.lock('deposit', id);
    const logIndex = (await transfersOf(tx, id)).length;
    const block = { number: 1, hash: '0x1', ms };
    const found = { txHash: id, logIndex, block, from: '0xpayer', to: address, asset, units };
    await upsertTransfer(tx, { id: `deptx_${id}_${logIndex}`, depositId: id, chain, found, isFinal: true });
    await setDue(tx, id, clock.now(), null);
  });
}

/**
 * Drives a paid deposit until nothing of it is due, or until it has a status. The node confirms what was seen. By default nobody objects to
 * the senders.
 */
export async function drivePaid(
  core: Core,
  { ledger, events }: Pick<Rooms, 'ledger' | 'events'>,
  id: string,
  { until, verdict = 'clear' }: { until?: DepositState; verdict?: Verdict } = {},
): Promise<void> {
  const { db, clock } = core;
  const nodesOf = (): { first: ChainReader; second: null } => ({ first: witness(core), second: null });
  const deps: StepDeps = { ...core, ledger, events, nodesOf, screen: async () => verdict, toleranceUnits: 0n };
  for (;;) {
    const { status, due_ms: dueMs } = (await findDeposit(db.read, id)) ?? { status: until, due_ms: null };
    if (status === until || (dueMs ?? Infinity) > clock.now()) return;
    await driveDeposit(id, deps);
  }
}

const DUE_UNITS = 25_000_000n;
/** The tokens that come in time on the way to each state, and what the check of the sender answers. */
const PAID: Partial<Record<DepositState, { units: bigint; verdict?: Verdict }>> = {
  detected: { units: DUE_UNITS },
  confirming: { units: DUE_UNITS },
  settled: { units: DUE_UNITS },
  screening: { units: DUE_UNITS },
  held_screening: { units: DUE_UNITS, verdict: 'unknown' },
  failed_screening: { units: DUE_UNITS, verdict: 'hit' },
  credited: { units: DUE_UNITS },
  credited_underpaid: { units: DUE_UNITS - 5_000_000n },
  credited_overpaid: { units: DUE_UNITS + 5_000_000n },
};
/** The time for tokens must be over on the way to these states. */
const OVER: readonly DepositState[] = ['expired', 'expired_received', 'credited_underpaid'];

/** A deposit of 25 USDC on Ethereum. The steps of the service bring it to `state`. */
export async function depositIn({ core, rooms }: World, orgId: string, state: DepositState): Promise<string> {
  const { db, clock } = core;
  const request = { asset: 'usdc', chain: 'ethereum', amount_usd_cents: 2_500 } as const;
  await noteRead(core, 'ethereum');
  const deposit = await db.tx('test.deposit', (tx) => rooms.deposits.create(tx, orgId, request));
  const { id, expires_ms: expiresMs } = deposit;
  const paid = PAID[state];
  if (paid !== undefined) await payDeposit(core, deposit, paid);
  if (OVER.includes(state)) await noteRead(core, 'ethereum', expiresMs + 1);
  await db.tx('test.due', (tx) => setDue(tx, id, clock.now(), null));
  await drivePaid(core, rooms, id, { until: state, verdict: paid?.verdict ?? 'clear' });
  if (state === 'expired_received') {
    await payDeposit(core, deposit, { units: DUE_UNITS, ms: expiresMs + 1 });
    await drivePaid(core, rooms, id);
  }
  if (state === 'failed') await rooms.deposits.decisions.reject(id, 'a test');
  return id;
}

/** A node that knows each transfer of `payDeposit`, and is asked for nothing else. */
function witness({ db }: Pick<Core, 'db'>): ChainReader {
  const nothing = async (): Promise<never> => {
    throw new Error('this node knows transfers alone');
  };
  return {
    obstacle: nothing,
    tip: nothing,
    block: nothing,
    transfers: nothing,
    balance: nothing,
    isSanctioned: nothing,
    transfersOf: async (txHash, address) =>
      (await transfersOf(db.read, txHash)).map((row) => ({
        txHash,
        logIndex: row.log_index,
        block: { number: row.block_number, hash: row.block_hash, ms: row.block_ms },
        from: row.from_address,
        to: address,
        asset: row.asset,
        units: row.units,
      })),
  };
}
