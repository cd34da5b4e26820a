// Operations on money that a test repeats after a crash: each has a key, moves one cent, and is in the books once however often it is done.
import { z } from 'zod';
import { text, ucents } from '../../control-plane/base/db/columns.ts';
import { type Db, type Query, sql } from '../../control-plane/base/db/db.ts';
import { openPostgres } from '../../control-plane/base/db/postgres.ts';
import { openSqlite } from '../../control-plane/base/db/sqlite.ts';
import { openEvents } from '../../control-plane/base/events/events.ts';
import { openSealing } from '../../control-plane/base/http/sealing.ts';
import { freeOutcome, closeReceipt, openReceipt } from '../../control-plane/models/gateway/states.ts';
import { findReceipt } from '../../control-plane/models/gateway/store.ts';
import { segmentsOf } from '../../control-plane/money/metering/store.ts';
import type { Core } from '../../control-plane/settings.ts';
import { openMoney } from '../../control-plane/wings.ts';
import { systemClock } from '../../shared/clock.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { UCENTS_PER_CENT } from '../../shared/money.ts';
import { systemRng } from '../../shared/rng.ts';
import { drivePaid, offlineDeposits } from './deposits.ts';
import { newReceipt, type Payer } from './payers.ts';
import { SETTINGS } from './settings.ts';

const HOUR_MS = 3_600_000;

export interface Operation {
  /** A request to a model and a rental set money aside and charge it. */
  do: 'credit' | 'up' | 'down' | 'refund' | 'ask' | 'rent' | 'payout' | 'deposit';
  /** The id of the receipt, the rental or the deposit, and for the others the reference of the operator. */
  key: string;
  payer: Payer;
  supplierId: string;
  /** The receipt that a refund is of. */
  refundedId: string;
}

/** What the wallet of the payer has more after each operation, in cents. */
export const EFFECT_CENTS: Readonly<Record<Operation['do'], bigint>> = {
  credit: 1n,
  up: 1n,
  down: -1n,
  refund: 1n,
  ask: -1n,
  rent: -1n,
  payout: 0n,
  deposit: 1n,
};

/** The rooms of money on a database that no other process has. */
export type MoneyAlone = ReturnType<typeof openMoneyAlone>;

export function openMoneyAlone(database: string) {
  const [clock, rng, log] = [systemClock(), systemRng(), createLog('test', 'silent')];
  const db: Db = database.startsWith('postgres:')
    ? openPostgres(database, { clock, rng, log })
    : openSqlite(database, { clock });
  const ids = createIds(clock, rng);
  const core: Core = { db, clock, ids, rng, log, sealing: openSealing(new Uint8Array(32).fill(5), ids) };
  const events = openEvents({ clock, ids, onAppend: async () => undefined });
  const nothing = (): void => undefined;
  const nudges = { engine: nothing, edge: nothing, watch: nothing, webhooks: nothing };
  const deposits = { ...offlineDeposits(['ethereum']), centsMin: 1, openPerOrgMax: 1_000_000 };
  return { core, events, ...openMoney(core, { ...SETTINGS, deposits }, { events, nudges }) };
}

/** Does it, or finds that it is done. */
export async function perform(money: MoneyAlone, operation: Operation): Promise<void> {
  const { core, corrections, payouts } = money;
  const { key: reference, payer, supplierId, refundedId: subjectId } = operation;
  const named = { reference, reason: 'r', orgId: payer.orgId, amountUcents: UCENTS_PER_CENT };
  switch (operation.do) {
    case 'credit':
      return void (await corrections.credit(named));
    case 'up':
    case 'down':
      return void (await corrections.adjust({ ...named, direction: operation.do, allowDebt: false }));
    case 'refund':
      return void (await corrections.refund({ ...named, subjectId, fromPlatform: false }));
    case 'payout':
      return void (await payouts.pay({ supplierId, cents: 1, reference }));
    case 'deposit':
      return drivePaid(core, money, operation.key);
    case 'ask':
      return ask(money, operation);
    case 'rent':
      return rent(money, operation);
  }
}

/** A request that a dead process has left open is still charged. */
async function ask({ core: { db, clock } }: MoneyAlone, { key: id, payer }: Operation): Promise<void> {
  const receipt = newReceipt(payer, { id, held_ucents: 2n * UCENTS_PER_CENT, opened_ms: clock.now() });
  if ((await findReceipt(db.read, id)) === undefined) {
    const opened = await db.hot(openReceipt(receipt));
    if (opened !== 'open') throw new Error(`the request ${id} was not opened: ${opened}`);
  }
  const outcome = { ...freeOutcome('completed'), charged_ucents: UCENTS_PER_CENT };
  await db.hot(closeReceipt(receipt, outcome, { nowMs: clock.now(), attempts: [] }));
}

/** The hour of a rental that ends now. */
async function rent({ core, metering }: MoneyAlone, { key: subjectId, payer, supplierId }: Operation): Promise<void> {
  const { db, clock } = core;
  const { orgId } = payer;
  const gpus = { gpuType: 'H100_SXM', gpuCount: 1, supplierBps: 8_000, supplierId, machineId: 'm' };
  await db.tx('test.begin', async (tx) => {
    await tx.lock('org', orgId);
    if ((await segmentsOf(tx, [subjectId])).length > 0) return;
    const startedMs = clock.now() - HOUR_MS;
    await metering.openSegment(tx, { ...gpus, subjectId, orgId, rateUcentsPerHour: UCENTS_PER_CENT, startedMs });
    await metering.holdForLaunch(tx, subjectId, orgId, UCENTS_PER_CENT);
  });
  await db.tx('test.end', async (tx) => {
    await tx.lock('org', orgId);
    const [segment] = await segmentsOf(tx, [subjectId]);
    await metering.closeSegment(tx, subjectId, (segment?.started_ms ?? 0) + HOUR_MS);
    await metering.releaseHold(tx, subjectId, orgId);
  });
}

const PostedRow = z.object({ key: text, total_ucents: ucents });

/** What the books have of each operation, by its key: a cent if it is there once. */
export async function postedByKey(query: Query): Promise<Map<string, bigint>> {
  const rows = await query.all(
    PostedRow,
    sql`select key, cast(sum(amount_ucents) as bigint) as total_ucents from (
          select c.reference as key, t.amount_ucents from corrections c join transfers t on t.batch_id = c.id
          union all
          select p.reference as key, t.amount_ucents from payouts p join transfers t on t.subject_id = p.id where t.kind = 'payout.paid'
          union all
          select subject_id as key, amount_ucents from transfers
            where kind in ('inference.charge', 'rental.charge', 'deposit.credit')
        ) as posted group by key`,
  );
  return new Map(rows.map(({ key, total_ucents: total }) => [key, total]));
}
