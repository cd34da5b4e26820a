// A replay of deliveries that were given up goes on in pieces, however many there are. Operators find failing endpoints, and replay one.
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { countRow } from '../../../../control-plane/base/db/columns.ts';
import { raw, sql } from '../../../../control-plane/base/db/db.ts';
import { portable } from '../../../../control-plane/base/db/migrate.ts';
import {
  type DeliveryRow,
  insertDelivery,
  moveDelivery,
} from '../../../../control-plane/rental/webhooks/delivery-store.ts';
import { findWithNeed } from '../../../../control-plane/rental/webhooks/endpoint-store.ts';
import { OVERDUE_MS } from '../../../../control-plane/rental/webhooks/operator-routes.ts';
import { REPLAY_PIECE } from '../../../../control-plane/rental/webhooks/deliveries.ts';
import { WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX } from '../../../../shared/limits.ts';
import { runCommand } from '../../../kit/operator-commands.ts';
import { eventually } from '../../../kit/processes.ts';
import { openWebhookWorld, type WebhookWorld } from './fixture.ts';

const ROOM = new URL('../../../../control-plane/rental/webhooks/', import.meta.url);
const DAY = 24 * 3_600_000;

let hooks: WebhookWorld;
let endpointId: string;
beforeEach(async () => {
  hooks = await openWebhookWorld();
  ({ id: endpointId } = await hooks.endpoint());
  // Nothing is sent to it, so what is revived stays as it is.
  await change({ enabled: false });
});
afterEach(async () => hooks.close());

const run = (): Promise<void> => hooks.rooms.webhooks.courier.run();
const change = (request: { enabled?: boolean; replay_since?: string }): Promise<unknown> =>
  hooks.db.tx('test.change', async (tx) => {
    await tx.lock('webhook_endpoint', endpointId);
    return hooks.rooms.webhooks.change(tx, hooks.who.orgId, endpointId, request);
  });
const replay = (sinceMs = 0): Promise<unknown> => change({ replay_since: new Date(sinceMs).toISOString() });

async function count(status: 'dead_lettered' | 'retrying'): Promise<number> {
  const row = await hooks.db.read.one(
    countRow,
    sql`select count(*) as count from webhook_deliveries where endpoint_id = ${endpointId} and status = ${status}`,
  );
  return row?.count ?? 0;
}

/** Deliveries that were given up, two in each millisecond from `fromMs` on. */
async function addDead(howMany: number, { fromMs = 1, isTest = false, attempts = 5 } = {}): Promise<void> {
  const nowMs = hooks.clock.now();
  await hooks.db.tx('test.dead', async (tx) => {
    for (let n = 0; n < howMany; n += 1) {
      const row: DeliveryRow = {
        id: `whd_${fromMs}_${isTest}_${attempts}_${n}`,
        endpoint_id: endpointId,
        event_id: 'evt_1',
        event_type: 'instance.running',
        instance_id: `i-${n}`,
        instance_version: 1,
        body: '{}',
        status: 'retrying',
        attempts,
        max_attempts: 5,
        next_trigger: 'schedule',
        next_attempt_ms: nowMs,
        urgent_ms: nowMs,
        deadline_ms: nowMs,
        created_ms: fromMs + Math.floor(n / 2),
        completed_ms: null,
        is_test: isTest,
      };
      await insertDelivery(tx, row);
      await moveDelivery(tx, row, { to: 'dead_lettered', nextMs: null, urgentMs: null, nowMs });
    }
  });
}

test('a request revives as many as fit into a piece', async () => {
  await addDead(REPLAY_PIECE);
  await replay();
  expect([await count('retrying'), await count('dead_lettered')]).toEqual([REPLAY_PIECE, 0]);
  await run();
  expect(await count('retrying')).toBe(REPLAY_PIECE);
});

test('one more than a piece is left to the courier, which revives one piece in a run, and then nothing more', async () => {
  await addDead(2 * REPLAY_PIECE + 1);
  await replay();
  expect(await count('retrying')).toBe(REPLAY_PIECE);
  await run();
  expect(await count('retrying')).toBe(2 * REPLAY_PIECE);
  await run();
  expect([await count('retrying'), await count('dead_lettered')]).toEqual([2 * REPLAY_PIECE + 1, 0]);
  await hooks.clock.advance(1);
  await addDead(1, { fromMs: 5 });
  await run();
  expect(await count('dead_lettered')).toBe(1);
});

test('what is given up after the request, was made before `since`, is a test, or had all attempts stays dead', async () => {
  await addDead(REPLAY_PIECE, { fromMs: 1_000 });
  await addDead(1, { fromMs: 999 });
  await addDead(1, { fromMs: 2_000, isTest: true });
  await addDead(1, { fromMs: 2_000, attempts: WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX });
  await replay(1_000);
  await hooks.clock.advance(1);
  await addDead(1, { fromMs: 3_000 });
  await run();
  expect([await count('retrying'), await count('dead_lettered')]).toEqual([REPLAY_PIECE, 4]);
});

test('a second request while a replay goes on loses nothing of the first', async () => {
  await addDead(REPLAY_PIECE + 2, { fromMs: 1_000 });
  await replay(1_000);
  await replay(500_000);
  await run();
  expect(await count('dead_lettered')).toBe(0);
});

test('a replay that cannot be read fails the run, and keeps no delivery and no other replay waiting', async () => {
  await addDead(REPLAY_PIECE + 1);
  await replay();
  const broken = await hooks.endpoint(['instance.failed']);
  await hooks.db.tx('test.break', (tx) =>
    tx.run(sql`update webhook_endpoints set replay_since_ms = 1, replay_asked_ms = null where id = ${broken.id}`),
  );
  const { id: whole } = await hooks.endpoint(['instance.creating'], 'whole');
  await hooks.launchOne();
  await expect(run()).rejects.toThrow(`the replay of ${broken.id}`);
  await eventually('delivery', 5_000, async () => {
    const [delivery] = await hooks.deliveries(whole);
    return delivery?.status === 'succeeded' ? true : undefined;
  });
  expect(await count('dead_lettered')).toBe(0);
});

test('the replay of a deleted endpoint ends', async () => {
  await addDead(REPLAY_PIECE + 1);
  await replay();
  await hooks.db.tx('test.delete', (tx) => hooks.rooms.webhooks.remove(tx, hooks.who.orgId, endpointId));
  await run();
  expect(await count('dead_lettered')).toBe(1);
});

interface Listed {
  endpoint_id: string;
  dead: number;
  overdue_since: string | null;
}
const listed = async (): Promise<Listed[]> =>
  (JSON.parse(await runCommand(hooks, ['admin', 'webhook', 'list', '--json'])) as { data: Listed[] }).data;

test('operators see endpoints with dead deliveries and overdue ones, and no others', async () => {
  expect(await listed()).toEqual([]);
  await addDead(1, { isTest: true });
  expect(await listed()).toEqual([]);
  await addDead(3);
  expect(await listed()).toMatchObject([{ endpoint_id: endpointId, dead: 3, overdue_since: null, status: 'disabled' }]);
  const late = await hooks.endpoint(undefined, 'late');
  await hooks.launchOne();
  await hooks.clock.advance(OVERDUE_MS - 1);
  expect(await listed()).toHaveLength(1);
  await hooks.clock.advance(1);
  expect(await listed()).toMatchObject([{ endpoint_id: late.id, dead: 0, overdue_since: expect.any(String) }, {}]);
});

test('an endpoint needs no more help when what was given up is revived or forgotten', async () => {
  const dead = async () => [
    (await listed()).map((row) => row.dead),
    (await findWithNeed(hooks.db.read, endpointId))?.in_need_ms,
  ];
  const startMs = hooks.clock.now();
  await addDead(2, { fromMs: 1 });
  await hooks.clock.advance(30 * DAY - 1);
  await addDead(4, { fromMs: 9 });
  await addDead(1, { isTest: true });
  expect(await dead()).toEqual([[6], startMs]);
  await replay(10);
  expect(await dead()).toEqual([[4], startMs]);
  await hooks.clock.advance(1);
  await hooks.rooms.webhooks.purge(new AbortController().signal);
  expect(await dead()).toEqual([[2], startMs + 30 * DAY - 1]);
  await hooks.clock.advance(30 * DAY);
  await hooks.rooms.webhooks.purge(new AbortController().signal);
  expect(await dead()).toEqual([[], null]);
});

test('an upgrade counts what was given up before it', async () => {
  await addDead(3);
  await addDead(1, { isTest: true });
  const inNeed = () => findWithNeed(hooks.db.read, endpointId);
  const before = await inNeed();
  expect(before).toMatchObject({ dead: 3, in_need_ms: hooks.clock.now() });
  const file = new URL('migrations/0008-endpoints-in-need.sql', ROOM);
  const update = portable(readFileSync(file, 'utf8'), hooks.db.dialect).match(/^update [^;]*/m)?.[0] ?? '';
  await hooks.db.tx('test.migrate', async (tx) => {
    await tx.run(sql`update webhook_endpoints set dead = 0, dead_since_ms = null`);
    await tx.run(raw(update));
  });
  expect(await inNeed()).toEqual(before);
});

test('an operator replays an endpoint with a reason, which stands in the audit journal', async () => {
  await addDead(3);
  const command = ['admin', 'webhook', 'replay', endpointId, '--since', '1970-01-01'];
  await expect(runCommand(hooks, command)).rejects.toThrow('--reason');
  const shown = JSON.parse(await runCommand(hooks, [...command, '--reason', 'asked', '--json'])) as Listed;
  expect(shown).toMatchObject({ endpoint_id: endpointId, dead: 0 });
  expect(await count('retrying')).toBe(3);
  const journal = await runCommand(hooks, ['admin', 'audit', 'list', '--json']);
  expect(journal).toContain('"operation":"adminReplayWebhookEndpoint"');
  expect(journal).toContain('"reason":"asked"');
  const other = ['admin', 'webhook', 'replay', 'whe_none', '--since', '1970-01-01', '--reason', 'x'];
  await expect(runCommand(hooks, other)).rejects.toThrow('There is no webhook endpoint whe_none.');
});
