// Starts a deposit: an address of its own, an exact amount, and a time.
import {
  type CreateDeposit,
  DEPOSIT_ASSETS,
  type DepositAsset,
  type DepositChain,
  type DepositMethods,
} from '../../../shared/api/deposit.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { dollarText, UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import { insertAddress, takeFreeAddress, takePositions } from './addresses-store.ts';
import { CHAINS, type Family, unitsOfCents } from './chains.ts';
import { allChains, type ChainRow, findChain } from './chains-store.ts';
import type { AddressKey } from './chain-addresses.ts';
import type { DepositSettings } from './settings.ts';
import { countExpired, countUndecided, type Deposit, insertDeposit } from './store.ts';

export interface CreateDeps {
  clock: Clock;
  ids: Ids;
  events: Events;
  /** Undefined: the operator has not set deposits up. */
  settings: DepositSettings | undefined;
}

/** Transfers that come later than the expiry are still noticed for 30 days. The operator decides about them. */
const WATCHED_MS = 30 * 24 * 3_600_000;
/**
 * An organisation may have this many times as many deposits that expired unpaid, in the time in which they are watched, as it may have open. Each
 * of them has used up an address, and makes the reads of its chain larger.
 */
const EXPIRED_PER_OPEN = 5;

/**
 * The caller holds the lock of the organisation.
 * @throws ServiceError `deposits_unavailable`, `deposit_addresses_exhausted`, `validation_failed`, `rate_limit_exceeded`
 */
export async function createDeposit(
  tx: Tx,
  orgId: string,
  request: CreateDeposit,
  { clock, ids, events, settings }: CreateDeps,
): Promise<Deposit> {
  const { chain, asset, amount_usd_cents: cents } = request;
  if (settings === undefined)
    return fail(
      'deposits_unavailable',
      'This service takes no stablecoin deposits. Ask its operator how to add funds.',
    );
  assertAllowed(request, settings);
  const row = await findChain(tx, chain);
  if (!isTaking(row)) {
    const others = [...settings.chains.keys()].filter((each) => each !== chain);
    const advice = others.length === 0 ? 'Try again later.' : `Try again later, or choose ${others.join(' or ')}.`;
    return fail('deposits_unavailable', {
      detail: `Deposits on ${chain} are paused. ${advice}`,
      retryAfterSeconds: 300,
    });
  }
  if ((await countUndecided(tx, orgId)) >= settings.openPerOrgMax) {
    return fail('rate_limit_exceeded', {
      detail: `This organisation may have ${settings.openPerOrgMax} deposits open at once. Pay one of them, or try again when one has expired.`,
      retryAfterSeconds: 60,
    });
  }
  const nowMs = clock.now();
  const expiredMax = settings.openPerOrgMax * EXPIRED_PER_OPEN;
  if ((await countExpired(tx, orgId, nowMs - WATCHED_MS)) >= expiredMax) {
    return fail('rate_limit_exceeded', {
      detail: `${expiredMax} deposits of this organisation have expired without a payment in the last 30 days, and no more are allowed. Pay one that is open, or ask the operator to add funds.`,
      retryAfterSeconds: 3_600,
    });
  }
  const id = ids.prefixed('dep');
  const expiresMs = nowMs + settings.expiryMs;
  const { family } = CHAINS[chain];
  const place = await takeAddress(tx, { id, family, key: settings.evmKey }, nowMs);
  const deposit: Deposit = {
    id,
    org_id: orgId,
    status: 'created',
    chain,
    asset,
    family,
    amount_cents: cents,
    due_units: unitsOfCents(cents),
    ...place,
    tx_hash: null,
    credited_units: null,
    credited_cents: null,
    note: null,
    created_ms: nowMs,
    expires_ms: expiresMs,
    watched_until_ms: expiresMs + WATCHED_MS,
    due_ms: null,
  };
  await insertDeposit(tx, deposit);
  await events.append(tx, { type: 'deposit.created', subjectId: id, orgId, data: { status: 'created' } });
  return deposit;
}

/** What the operator has set up, in the order of the configuration. A deposit that names a method which is not available is refused. */
export async function depositMethods(query: Query, settings: DepositSettings | undefined): Promise<DepositMethods> {
  if (settings === undefined) return { min_usd_cents: null, max_usd_cents: null, methods: [] };
  const rows = new Map((await allChains(query)).map((row) => [row.id, row]));
  const methods = [...settings.chains].flatMap(([chain, { contracts }]) =>
    DEPOSIT_ASSETS.filter((asset) => contracts[asset] !== undefined).map((asset) => ({
      chain,
      asset,
      available: isTaking(rows.get(chain)),
    })),
  );
  return { min_usd_cents: settings.centsMin, max_usd_cents: settings.centsMax, methods };
}

/** False for a chain that is paused, or of which no block was read so far. */
function isTaking(row: ChainRow | undefined): boolean {
  return row !== undefined && row.paused_reason === null && row.final_number !== null;
}

function assertAllowed({ chain, asset, amount_usd_cents: cents }: CreateDeposit, settings: DepositSettings): void {
  const { centsMin, centsMax, chains } = settings;
  const watched = chains.get(chain);
  if (watched === undefined)
    return failField('chain', `must be ${[...chains.keys()].join(' or ')}: this service takes nothing on ${chain}`);
  if (watched.contracts[asset] === undefined) return failField('asset', missingAsset(chain, asset));
  const dollars = (amount: number): string => `${amount} ($${dollarText(BigInt(amount) * UCENTS_PER_CENT)})`;
  if (cents < centsMin) failField('amount_usd_cents', `must be at least ${dollars(centsMin)}`);
  if (cents > centsMax) failField('amount_usd_cents', `must be at most ${dollars(centsMax)}`);
}

function missingAsset(chain: DepositChain, asset: DepositAsset): string {
  if (chain === 'base' && asset === 'usdt')
    return 'must not be usdt on base: its issuer has none there, so what is sold as that is worth something else. Send usdc, or choose another chain';
  return `must not be ${asset} on ${chain}: this service takes it on other chains only`;
}

/** An address is taken with its deposit in one transaction, so each is used for one deposit. */
async function takeAddress(
  tx: Tx,
  { id, family, key }: { id: string; family: Family; key: AddressKey | null },
  nowMs: number,
): Promise<Pick<Deposit, 'address' | 'position'>> {
  await tx.lock('deposit_family', family);
  if (key === null || family !== 'evm') {
    const free = await takeFreeAddress(tx, family, id);
    if (free !== undefined) return free;
    return fail('deposit_addresses_exhausted', {
      detail: `No address on ${family} is left for a new deposit. Try again later, or choose another chain.`,
      retryAfterSeconds: 300,
    });
  }
  const position = await takePositions(tx, family, 1);
  const address = key.addressOf(position);
  await insertAddress(tx, {
    family,
    position,
    address,
    key_fingerprint: key.fingerprint,
    deposit_id: id,
    created_ms: nowMs,
  });
  return { address, position };
}
