// Bills of many lines: they are read in pages that show one moment, with turns of the event loop between, and an organisation reads few at once.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { type BillDeps, billOf } from '../../../control-plane/money/bill/bill.ts';
import { billRoute, type BillRouteDeps } from '../../../control-plane/money/bill/routes.ts';
import { accountId, revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { openMonthLines } from '../../../control-plane/money/ledger/month-lines.ts';
import { monthOf } from '../../../control-plane/money/ledger/month.ts';
import type { Billed } from '../../../control-plane/money/ledger/wallets.ts';
import type { Bill } from '../../../shared/api/bill.ts';
import { BILLS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { type Api, type ApiAccount, openApi } from '../../contract/api.ts';

/** Lines that are read in one turn of the event loop. */
const PAGE = 1_000;

let api: Api;
let account: ApiAccount;
beforeEach(async () => {
  api = await openApi();
  account = await api.account();
});
afterEach(() => api.close());

const billed = (): Billed => Object.assign({}, ...api.world.brings().map((each) => each.billed ?? {})) as Billed;
/** Inserts summed lines of as many rentals. They change nothing, so the books stay right. */
async function store(count: number): Promise<void> {
  const { clock, db } = api.world;
  const { fromMs } = monthOf(undefined, clock.now()).window;
  await db.tx('test.lines', async (tx) => {
    for (let i = 0; i < count; i += 1)
      await tx.run(
        sql`insert into month_lines (account_id, month_ms, kind, subject_id, batch_id, evidence, count, change_ucents, last_posted_ms)
            values (${accountId(wallet(account.orgId))}, ${fromMs}, 'rental.charge', ${`i-${String(i).padStart(5, '0')}`}, '', '', 1, 0, ${fromMs + i})`,
      );
  });
}

/** Reads the bill, and writes down its transactions and the turns of the event loop. `onTurn` happens in each turn. */
async function read(onTurn: () => Promise<void> = async () => undefined): Promise<{ bill: Bill; events: string[] }> {
  const { clock, db, rooms } = api.world;
  const events: string[] = [];
  const snapshot: typeof db.snapshot = (name, body) => {
    events.push(name);
    return db.snapshot(name, body);
  };
  const nextTurn = async (): Promise<void> => {
    events.push('turn');
    await onTurn();
    await clock.nextTurn();
  };
  const deps = { db: { ...db, snapshot }, clock: { ...clock, nextTurn }, ledger: rooms.ledger, billed };
  return { bill: await billOf(account.orgId, undefined, deps), events };
}
const rentalsOf = (bill: Bill): (string | null)[] =>
  bill.lines.filter(({ section }) => section === 'rental').map((line) => line.subject_id);

describe('a bill', () => {
  test.each([
    [PAGE - 1, 1],
    [PAGE, 2],
    [PAGE + 1, 2],
  ])('of %d lines is read in pages with a turn after each, and has each line once', async (count, pages) => {
    await store(count);
    const { bill, events } = await read();
    // Two more turns come before the lines are sorted, and before they become text.
    expect(events).toEqual(['month', ...Array.from({ length: pages + 2 }, () => 'turn')]);
    expect(rentalsOf(bill)).toEqual(Array.from({ length: count }, (_, i) => `i-${String(i).padStart(5, '0')}`));
  });

  test.each([
    [1, 2, 1],
    [2, 2, 2],
    [3, 3, 3],
    [4, 3, 4],
    [5, 4, 5],
    // A reading has two pages, and the last reading has no turn between them.
    [9, 4, 6],
  ])('shows one moment if transfers are summed %d times meanwhile', async (times, readings, shown) => {
    await store(PAGE);
    const { clock, db, rooms } = api.world;
    const months = openMonthLines({ ...api.world, ...api.world.core, billed });
    let moves = 0;
    const { bill, events } = await read(async () => {
      if (moves >= times) return;
      moves += 1;
      const id = `i-new-${moves}`;
      const about = { id, debit: wallet(account.orgId), credit: revenue, subjectId: id, effectiveMs: 1 };
      const charge = { ...about, kind: 'rental.charge', amountUcents: 150_000_000n };
      await db.tx('test.post', (tx) => rooms.ledger.post(tx, `batch ${id}`, [charge]));
      await clock.advance(61_000);
      await months.run(new AbortController().signal);
    });
    expect(events.filter((event) => event.startsWith('month'))).toHaveLength(readings);
    expect(rentalsOf(bill).filter((id) => id?.startsWith('i-new') === true)).toHaveLength(shown);
    expect(rentalsOf(bill)).toHaveLength(PAGE + shown);
    expect(new Set(rentalsOf(bill)).size).toBe(PAGE + shown);
    expect(bill.closing_balance).toBe(`${10_000 - 1.5 * shown}`.replace(/\.5$/, '.50').replace(/^(\d+)$/, '$1.00'));
  });

  test('shows one moment if its lines are made again meanwhile', async () => {
    await store(PAGE + 1);
    const { clock, db } = api.world;
    const months = openMonthLines({ ...api.world, ...api.world.core, billed });
    let isMade = false;
    const { bill, events } = await read(async () => {
      if (isMade) return;
      isMade = true;
      // Lines that do not sum to the balance are made from the transfers, of which there is only the deposit.
      await db.tx('test.wrong', (tx) =>
        tx.run(sql`update month_lines set change_ucents = 1 where subject_id = 'i-00000'`),
      );
      await clock.advance(61_000);
      await months.run(new AbortController().signal);
    });
    expect(events.filter((event) => event.startsWith('month'))).toHaveLength(2);
    expect(rentalsOf(bill)).toEqual([]);
    expect(bill.lines).toHaveLength(1);
  });
});

test.each([PAGE - 4, PAGE - 3, PAGE - 2, 2 * PAGE])(
  'a table of %d rentals has the lines of the bill',
  async (count) => {
    await store(count);
    const { json } = await api.call('GET', '/v1/bill', account);
    const { body } = await api.call('GET', '/v1/bill?format=csv', account);
    const cells = String(body)
      .trimEnd()
      .split('\r\n')
      .map((line) => line.split(','));
    const { lines } = json as unknown as Bill;
    expect(lines).toHaveLength(count + 1);
    expect(cells.slice(2, -1).map((row) => [row[1], row[2], row[6], row[8]])).toEqual(
      lines.map((line) => [line.section, line.subject_id, line.amount, line.posted_at]),
    );
    expect([cells[1]?.[1], cells.at(-1)?.[1]]).toEqual(['opening_balance', 'closing_balance']);
  },
);

test(`an organisation reads ${BILLS_PER_ORG_MAX} at once: one more waits for its turn, and is refused after a while`, async () => {
  const { clock, db, rooms } = api.world;
  const gates: (() => void)[] = [];
  const snapshot: typeof db.snapshot = async (name, body) => {
    if (name === 'month') await new Promise<void>((resolve) => gates.push(resolve));
    return db.snapshot(name, body);
  };
  const deps: BillDeps = { db: { ...db, snapshot }, clock, ledger: rooms.ledger, billed };
  const { handler } = billRoute(deps as BillRouteDeps);
  const bill = async ({ orgId }: ApiAccount): Promise<unknown> => {
    const call = { caller: { orgId }, query: { month: undefined, format: 'json' } };
    return handler(call as unknown as Parameters<typeof handler>[0]);
  };
  const asked = Array.from({ length: BILLS_PER_ORG_MAX }, () => bill(account));
  await expect.poll(() => gates.length).toBe(BILLS_PER_ORG_MAX);
  // These wait, and they come to their turn in their order.
  asked.push(bill(account));
  const refused = bill(account).catch((error: unknown) => error);
  const others = bill(await api.account());
  await expect.poll(() => gates.length).toBe(BILLS_PER_ORG_MAX + 1);
  gates[0]?.();
  await expect.poll(() => gates.length).toBe(BILLS_PER_ORG_MAX + 2);
  await clock.advance(5_000);
  expect(await refused).toMatchObject({ code: 'rate_limit_exceeded' });
  for (const open of gates) open();
  for (const answer of await Promise.all([...asked, others])) expect(answer).toMatchObject({ status: 200 });
});
