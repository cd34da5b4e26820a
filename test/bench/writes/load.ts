// One control plane's share of the load on the write path: opens and closes paid requests, with the real bodies on the real driver.
import type { Db, HotBody } from '../../../control-plane/base/db/db.ts';
import { takeLease } from '../../../control-plane/base/db/lease.ts';
import { migrate, prepareDatabase } from '../../../control-plane/base/db/migrate.ts';
import { openPostgres } from '../../../control-plane/base/db/postgres.ts';
import { openSqlite } from '../../../control-plane/base/db/sqlite.ts';
import { SCHEMA } from '../../../control-plane/foundation.ts';
import { closeReceipt, openReceipt } from '../../../control-plane/models/gateway/states.ts';
import { funding, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { type Ledger, openLedger } from '../../../control-plane/money/ledger/ledger.ts';
import { systemClock } from '../../../shared/clock.ts';
import { createIds } from '../../../shared/ids.ts';
import { createLog } from '../../../shared/log.ts';
import { systemRng } from '../../../shared/rng.ts';
import { percentile } from '../measure.ts';
import { type Answer, serveOrders } from '../side.ts';

const ORGS = 20;
const HELD_UCENTS = 50_000_000n;
const CHARGED_UCENTS = 27_000n;

const clock = systemClock();
const rng = systemRng();
const ids = createIds(clock, rng);
const log = createLog('bench', 'error');
const ledger: Ledger = openLedger({ clock });

let db: Db | undefined;
const database = (): Db => {
  if (db === undefined) throw new Error('no database is open');
  return db;
};

serveOrders(async (order): Promise<Answer> => {
  const { kind } = order;
  if (kind === 'open') {
    const url = String(order['url']);
    db = url.startsWith('postgres:') ? await openFenced(url) : openSqlite(url, { clock });
    return {};
  }
  if (kind === 'prepare') return prepare();
  if (kind === 'chats') return chats(Number(order['callers']), Number(order['ms']), order['way'] === 'plain');
  await database().close();
  return {};
});

/** With a lease of its own, because in production each transaction checks one. */
async function openFenced(url: string): Promise<Db> {
  const postgres = openPostgres(url, { clock, log, rng });
  await prepareDatabase(postgres);
  const held = await takeLease(postgres, { name: `bench-${process.pid}`, holder: 'bench' }, undefined);
  if (held !== undefined) postgres.fence(held);
  return postgres;
}

/** The schema, and customers with money. */
async function prepare(): Promise<Answer> {
  await migrate(database(), SCHEMA, { clock });
  for (let i = 0; i < ORGS; i += 1) {
    const fund = { debit: funding, credit: wallet(orgOf(i)), amountUcents: 10n ** 15n, kind: 'funding.manual' };
    const transfer = { ...fund, id: `fund:${i}`, subjectId: orgOf(i), effectiveMs: 1 };
    await database().tx('bench', (tx) => ledger.post(tx, `fund:${i}`, [transfer]));
  }
  return {};
}

/** So many callers, each with one paid request after the other. With `isPlain`, each body is an ordinary transaction. */
async function chats(callers: number, forMs: number, isPlain: boolean): Promise<Answer> {
  const run = <T>(body: HotBody<T>): Promise<T> =>
    isPlain ? database().tx(body.name, body.run) : database().hot(body);
  const untilMs = clock.monotonicMs() + forMs;
  const waitsMs: number[] = [];
  let errors = 0;
  const caller = async (): Promise<void> => {
    while (clock.monotonicMs() < untilMs) {
      const startedMs = clock.monotonicMs();
      try {
        await chat(run);
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

async function chat(run: <T>(body: HotBody<T>) => Promise<T>): Promise<void> {
  const receipt = {
    id: ids.prefixed('rcp'),
    org_id: orgOf(Math.floor(rng.float() * ORGS)),
    api_key_id: 'bench',
    request_id: 'bench',
    model_id: 'bench',
    tier: 'serverless' as const,
    end_user: null,
    metadata: null,
    held_ucents: HELD_UCENTS,
    opened_ms: clock.now(),
  };
  if (!(await run(openReceipt(receipt, ledger)))) throw new Error('the balance does not cover a request');
  const outcome = {
    charged_ucents: CHARGED_UCENTS,
    ending: 'completed' as const,
    prompt_tokens: 6,
    completion_tokens: 3,
    images: null,
    counted_by: 'upstream' as const,
    upstream: 'bench',
  };
  if (!(await run(closeReceipt(receipt, outcome, { ledger, nowMs: clock.now(), attempts: [] }))))
    throw new Error('it was closed');
}

function orgOf(i: number): string {
  return `org-${i}`;
}
