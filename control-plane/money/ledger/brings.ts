// What this room adds to the house: the loop and the command that prove the books, their metrics, and the loop that sums up months.
import { z } from 'zod';
import { isoTime } from '../../../shared/clock.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import type { Db } from '../../base/db/db.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import { AnyFields, operator } from '../../base/http/operator.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Books } from './books.ts';
import type { MonthLines } from './month-lines.ts';
import { proofState } from './proof-store.ts';

/** New transfers are proven each hour. Once a night, all transfers are proven. */
const BOOKS_PERIOD_MS = 3_600_000;

/** A bill reads the transfers of this time one by one, and of the minute in which transfers settle. */
const MONTHS_PERIOD_MS = 120_000;

export function ledgerBrings({ db, books, months }: { db: Db; books: Books; months: MonthLines }) {
  const loopOf = (name: string, periodMs: number, work: Pick<Books | MonthLines, 'run'>): LoopOptions => ({
    name,
    periodMs,
    run: async (signal) => ((await work.run(signal)) ? 'again' : undefined),
  });
  return {
    loops: [loopOf('books', BOOKS_PERIOD_MS, books), loopOf('months', MONTHS_PERIOD_MS, months)],
    measures: measures(db),
    operatorRoutes: [showRoute(db), verifyRoute(books)],
  };
}

/** The metrics are 0 before the first proof. */
function measures(db: Db): Measure[] {
  return [
    {
      name: 'svc_ledger_faults',
      help: 'Broken invariants of the books that the last proof has found; the log names each',
      kind: 'gauge',
      read: async () => one((await proofState(db.read)).faults),
    },
    {
      name: 'svc_ledger_verified_timestamp_seconds',
      help: 'When the books were last proven to the end: what was new in them, and the whole',
      kind: 'gauge',
      labels: ['extent'],
      read: async () => {
        const { new_proven_ms: newMs, whole_proven_ms: wholeMs } = await proofState(db.read);
        return [
          { labels: { extent: 'new' }, value: (newMs ?? 0) / 1000 },
          { labels: { extent: 'whole' }, value: (wholeMs ?? 0) / 1000 },
        ];
      },
    },
  ];
}

function showRoute(db: Db): Route {
  const timeOf = (ms: number | null): string | null => (ms === null ? null : isoTime(ms));
  return route({
    ...operator,
    method: 'GET',
    path: '/admin/ledger',
    operationId: 'adminShowLedger',
    summary: 'Show what the last proof of the books has found, and when the books were last proven completely',
    responses: { 200: { description: 'The result', schema: AnyFields } },
    errors: [],
    handler: async () => {
      const { faults, new_proven_ms: newMs, whole_proven_ms: wholeMs } = await proofState(db.read);
      return { status: 200, body: { faults, new_proven_at: timeOf(newMs), whole_proven_at: timeOf(wholeMs) } };
    },
  });
}

function verifyRoute(books: Pick<Books, 'verify'>): Route {
  const Verdict = z.strictObject({ ok: z.boolean(), faults: z.array(z.string()) });
  return route({
    ...operator,
    method: 'POST',
    path: '/admin/ledger/verify',
    operationId: 'adminVerifyLedger',
    summary: 'Prove that the books agree',
    responses: { 200: { description: 'The verdict', schema: Verdict } },
    errors: [],
    handler: async () => {
      const faults = await books.verify();
      return { status: 200, body: { ok: faults.length === 0, faults } };
    },
  });
}
