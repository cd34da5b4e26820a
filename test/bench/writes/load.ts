// One control plane's share of the load on the write path: opens and closes paid requests, with the real bodies on the real driver.
import { z } from 'zod';
import { text } from '../../../control-plane/base/db/columns.ts';
import { type Db, type HotBody, sql, type Tx } from '../../../control-plane/base/db/db.ts';
import { migrate } from '../../../control-plane/base/db/migrate.ts';
import { SCHEMA } from '../../../control-plane/foundation.ts';
import { closeReceipt, openReceipt } from '../../../control-plane/models/gateway/states.ts';
import { type Ledger, openLedger } from '../../../control-plane/money/ledger/ledger.ts';
import { systemClock } from '../../../shared/clock.ts';
import { createIds } from '../../../shared/ids.ts';
import { systemRng } from '../../../shared/rng.ts';
import { makePayers, newReceipt, type Payer } from '../../kit/payers.ts';
import { openBenchDb } from '../database.ts';
import { percentile } from '../measure.ts';
import { type Answer, serveOrders } from '../side.ts';

const ORGS = 20;
const HELD_UCENTS = 50_000_000n;
const CHARGED_UCENTS = 27_000n;

const clock = systemClock();
const rng = systemRng();
const ids = createIds(clock, rng);
const ledger: Ledger = openLedger({ clock });

let db: Db | undefined;
const database = (): Db => {
  if (db === undefined) throw new Error('no database is open');
  return db;
};

serveOrders(async (order): Promise<Answer> => {
  const { kind } = order;
  if (kind === 'open') {
    db = await openBenchDb(String(order['url']));
    return {};
  }
  if (kind === 'prepare') return prepare();
  if (kind === 'chats') return chats(Number(order['callers']), Number(order['ms']), order['way'] === 'plain');
  await database().close();
  return {};
});

/** The schema, and customers with money. */
async function prepare(): Promise<Answer> {
  await migrate(database(), SCHEMA, { clock });
  await makePayers(ORGS, { db: database(), clock, ids, ledger });
  return {};
}

/** So many callers, each with one paid request after the other. With `isPlain`, the statement of each body is a transaction of its own. */
async function chats(callers: number, forMs: number, isPlain: boolean): Promise<Answer> {
  const run = <T>(body: HotBody<T>): Promise<T> =>
    isPlain ? database().tx(body.name, (tx) => onlyRow(tx, body)) : database().hot(body);
  const payers = await database().read.all(PayerRow, sql`select id, org_id from api_keys`);
  const untilMs = clock.monotonicMs() + forMs;
  const waitsMs: number[] = [];
  let errors = 0;
  const caller = async (): Promise<void> => {
    while (clock.monotonicMs() < untilMs) {
      const startedMs = clock.monotonicMs();
      try {
        await chat(run, payers[Math.floor(rng.float() * payers.length)]);
        waitsMs.push(clock.monotonicMs() - startedMs);
      } catch (error) {
        errors += 1;
        if (errors === 1) console.error(String(error));
      }
    }
  };
  const startedMs = clock.monotonicMs();
  await Promise.all(Array.from({ length: callers }, caller));
  const seconds = (clock.monotonicMs() - startedMs) / 1000;
  return {
    perSecond: waitsMs.length / seconds,
    errors,
    p50Ms: percentile(waitsMs, 0.5),
    p99Ms: percentile(waitsMs, 0.99),
  };
}

const PayerRow = z
  .object({ id: text, org_id: text })
  .transform(({ id, org_id }) => ({ orgId: org_id, principalId: id }));

async function onlyRow<T>(tx: Tx, body: HotBody<T>): Promise<T> {
  const row = await tx.one(body.row, body.statement());
  if (row === undefined) throw new Error(`${body.name} has no row`);
  return row;
}

async function chat(run: <T>(body: HotBody<T>) => Promise<T>, payer: Payer | undefined): Promise<void> {
  if (payer === undefined) throw new Error('there is no payer');
  const receipt = newReceipt(payer, { id: ids.prefixed('rcp'), held_ucents: HELD_UCENTS, opened_ms: clock.now() });
  const opened = await run(openReceipt(receipt));
  if (opened !== 'open') throw new Error(`a request was not opened: ${opened}`);
  const outcome = {
    charged_ucents: CHARGED_UCENTS,
    ending: 'completed' as const,
    prompt_tokens: 6,
    completion_tokens: 3,
    images: null,
    counted_by: 'upstream' as const,
    upstream: 'bench',
  };
  if (!(await run(closeReceipt(receipt, outcome, { nowMs: clock.now(), attempts: [] }))))
    throw new Error('it was closed');
}
