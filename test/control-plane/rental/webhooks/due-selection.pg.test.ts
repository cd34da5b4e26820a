// A run of the courier reads the endpoints that it may try now, however many rest after failures or are disabled with deliveries that wait.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { type Api, openReadingApi } from '../../../contract/api.ts';
import { analyze, type Reading } from '../../../kit/long-history.ts';
import { openOperator } from '../../../kit/operator.ts';

const EACH = 500;
const DUE = 3;
const MINUTE = 60_000;

let api: Api;
let reading: Reading;
let close: () => Promise<void>;
beforeEach(async () => {
  ({ api, reading, close } = await openReadingApi());
  const nowMs = api.world.clock.now();
  await fill('resting', EACH, { status: 'degraded', openUntilMs: nowMs + MINUTE, urgentMs: nowMs + 60 * MINUTE });
  await fill('off', EACH, { status: 'disabled', openUntilMs: null, urgentMs: nowMs });
  await fill('due', DUE, { status: 'healthy', openUntilMs: null, urgentMs: nowMs + MINUTE });
  await analyze(api.world.db);
});
afterEach(() => close());

interface Rest {
  status: string;
  openUntilMs: number | null;
  urgentMs: number;
}

/** Endpoints that have had something due for two minutes. */
async function fill(kind: string, count: number, { status, openUntilMs, urgentMs }: Rest): Promise<void> {
  const dueMs = api.world.clock.now() - 2 * MINUTE;
  await api.world.db.tx('test.fill', (tx) =>
    tx.run(sql`insert into webhook_endpoints (id, org_id, url, event_types, status, secret_sealed, due_ms, urgent_ms, open_until_ms, created_ms)
      select ${kind} || n, 'o', 'https://example.com/', '[]', ${status}, 'x', ${dueMs}, ${urgentMs}, ${openUntilMs}::bigint, n
      from generate_series(1, ${count}) as numbers (n)`),
  );
}

test('a run reads what is due alone', async () => {
  const { rows, costly } = await reading(() => api.world.rooms.webhooks.courier.run());
  expect([rows > 10 * DUE, ...costly]).toEqual([false]);
});

test('the overview of operators reads what is due alone', async () => {
  const operator = openOperator(api.world);
  const { answer, costly } = await reading(() => operator.ask('GET', '/admin/overview'));
  expect(costly).toEqual([]);
  expect(JSON.stringify(answer).match(/endpoint due\d/g)).toHaveLength(DUE);
  await operator.http.close();
});
