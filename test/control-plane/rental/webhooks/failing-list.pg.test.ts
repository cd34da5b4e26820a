// The operator's list of endpoints that need help reads what it shows, however many endpoints need none, or will need some later.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { type Api, openReadingApi } from '../../../contract/api.ts';
import { analyze, type Reading } from '../../../kit/long-history.ts';
import { openOperator } from '../../../kit/operator.ts';

const EACH = 500;
const PAGE = 20;
const MINUTE = 60_000;

let api: Api;
let reading: Reading;
let close: () => Promise<void>;
beforeEach(async () => {
  ({ api, reading, close } = await openReadingApi());
});
afterEach(() => close());

/** Endpoints that were made one after another. */
async function fill(kind: string, { status, dueMs }: { status: string; dueMs: number | null }): Promise<void> {
  await api.world.db.tx('test.fill', (tx) =>
    tx.run(sql`insert into webhook_endpoints (id, org_id, url, event_types, status, secret_sealed, due_ms, created_ms)
      select ${kind} || n, 'o', 'https://example.com/', '[]', ${status}, 'x', ${dueMs}::bigint - n, n from generate_series(1, ${EACH}) as numbers (n)`),
  );
}

test('a page reads the endpoints that it shows', async () => {
  const nowMs = api.world.clock.now();
  await fill('overdue', { status: 'healthy', dueMs: nowMs - MINUTE });
  await fill('idle', { status: 'healthy', dueMs: null });
  await fill('later', { status: 'degraded', dueMs: nowMs + 60 * MINUTE });
  await fill('off', { status: 'disabled', dueMs: nowMs - 60 * MINUTE });
  await analyze(api.world.db);
  const operator = openOperator(api.world);
  const seen: unknown[] = [];
  for (let cursor: unknown = ''; typeof cursor === 'string';) {
    const url = `/admin/webhook-endpoints?limit=${PAGE}${cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`}`;
    const { rows, answer, costly } = await reading(() => operator.ask('GET', url));
    expect([rows > 2 * PAGE, ...costly]).toEqual([false]);
    seen.push(...(answer['data'] as { endpoint_id: string }[]).map(({ endpoint_id: id }) => id));
    cursor = answer['next_cursor'];
  }
  expect(seen).toEqual(Array.from({ length: EACH }, (_, n) => `overdue${n + 1}`));
  await operator.http.close();
});
