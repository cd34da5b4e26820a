// What the overview shows of the past is the same from every control plane: links of a day, rows that were worked off, requests to models.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { brought } from '../../../control-plane/brings.ts';
import { Overview } from '../../../shared/api/overview.ts';
import { isoTime } from '../../../shared/clock.ts';
import { METRICS_KEEP_MS } from '../../../shared/limits.ts';
import { openOperator } from '../../kit/operator.ts';
import { openWorld, type World } from '../../kit/world.ts';
import { linkHost, loseHost } from '../../kit/machines.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

let world: World;
beforeEach(async () => {
  world = await openWorld();
  await world.clock.advance(MINUTE_MS - (world.clock.now() % MINUTE_MS));
});
afterEach(async () => {
  await world.close();
});

async function read(): Promise<Overview> {
  const operator = openOperator(world);
  const answer = await operator.ask('GET', '/admin/overview');
  await operator.http.close();
  return Overview.parse(answer);
}

/** A process on the database. `driven` are the rows that its engine has driven. It writes a minute when it is told. */
function processThatDrove(driven: ReadonlyMap<string, number>): () => Promise<unknown> {
  const loop = brought(world.brings({ driven: () => driven }), 'loops').find(({ name }) => name === 'minutes');
  return () => loop?.run(new AbortController().signal) ?? Promise.reject(new Error('there is no such loop'));
}

describe('rows that were worked off', () => {
  test('are those of the last minute of all processes together, and not known before one has written', async () => {
    const perMinute = async () => (await read()).due.find(({ kind }) => kind === 'instances')?.per_minute;
    expect(await perMinute()).toBeNull();
    const [first, second] = [new Map([['instances', 5]]), new Map([['instances', 100]])];
    const [writeFirst, writeSecond] = [processThatDrove(first), processThatDrove(second)];
    await writeFirst();
    await writeSecond();
    expect(await perMinute()).toBe(105);
    await world.clock.advance(MINUTE_MS);
    first.set('instances', 9);
    await writeFirst();
    await writeSecond();
    expect(await perMinute()).toBe(4);
    await world.clock.advance(150_000);
    expect(await perMinute()).toBeNull();
  });

  test('of webhooks are the deliveries that were completed in the last minute', async () => {
    const nowMs = world.clock.now();
    await world.db.tx('test.webhooks', async (tx) => {
      const delivery = (id: string, atMs: number) =>
        tx.run(sql`insert into webhook_deliveries (id, endpoint_id, event_id, event_type, instance_id, instance_version, body, status, attempts,
                     max_attempts, next_trigger, deadline_ms, created_ms, completed_ms)
                   values (${id}, 'e', 'e', 't', 'i', 1, '{}', 'delivered', 1, 1, 'x', 0, 0, ${atMs})`);
      await delivery('a', nowMs - MINUTE_MS + 1);
      await delivery('old', nowMs - MINUTE_MS);
    });
    expect((await read()).due.find(({ kind }) => kind === 'webhook_endpoints')?.per_minute).toBe(1);
  });
});

describe('the last 24 hours', () => {
  test('count a machine that is silent now, before its first silent minute is noted', async () => {
    const { machineId } = await world.machine();
    await processThatDrove(new Map())();
    await loseHost(world, machineId);
    const { machines, last_day: day } = await read();
    expect(machines).toEqual({ listed: 1, linked: 0 });
    expect(day.silent_most).toBe(1);
  });

  test('have the links minute by minute, and the time in which nobody wrote', async () => {
    const startMs = world.clock.now();
    const { machineId } = await world.machine();
    const write = processThatDrove(new Map());
    const minutes = async (count: number) => {
      for (let n = 0; n < count; n += 1) {
        await write();
        await world.clock.advance(MINUTE_MS);
      }
    };
    expect((await read()).last_day).toMatchObject({ spans: [], silent_most: 0, outages: 0, credited: '0.00' });
    await minutes(3);
    await loseHost(world, machineId);
    await minutes(2);
    await linkHost(world, machineId);
    // One minute that is skipped is no gap, and five are one.
    await world.clock.advance(MINUTE_MS);
    await minutes(1);
    await world.clock.advance(5 * MINUTE_MS);
    await minutes(1);
    const at = (minute: number): string => isoTime(startMs + minute * MINUTE_MS);
    const { spans, silent_most: silent } = (await read()).last_day;
    expect(spans).toEqual([
      { state: 'up', from: at(0), until: at(3) },
      { state: 'silent', from: at(3), until: at(6) },
      { state: 'up', from: at(6), until: at(7) },
      { state: 'away', from: at(7), until: at(12) },
      { state: 'up', from: at(12), until: at(13) },
    ]);
    expect(silent).toBe(1);
    await world.clock.advance(24 * HOUR_MS);
    expect((await read()).last_day.spans).toEqual([]);
  });

  test('have the outages with what they gave', async () => {
    await world.machine({ gpus: 2, dollars: 3.6 });
    const who = await world.customer(1_000_000);
    const [first, second] = [await world.run(who), await world.run(who)];
    const fromMs = world.clock.now();
    const fail = (id: string) =>
      world.db.tx('test.fail', (tx) => world.rooms.metering.closeSegment(tx, id, fromMs, 'the probes failed'));
    await fail(first);
    await fail(second);
    await world.clock.advance(10 * MINUTE_MS);
    expect((await read()).last_day).toMatchObject({
      outages: 1,
      spans: [{ state: 'outage', from: isoTime(fromMs), until: isoTime(world.clock.now()) }],
    });
    const endMs = world.clock.now();
    for (const id of [first, second]) await world.end(who, id);
    await world.clock.advance(HOUR_MS);
    expect((await read()).last_day).toMatchObject({
      outages: 1,
      credited: '1.20',
      spans: [{ state: 'outage', from: isoTime(fromMs), until: isoTime(endMs) }],
    });
  });

  test('are forgotten with the metrics', async () => {
    const write = processThatDrove(new Map([['instances', 1]]));
    const forget = async () => {
      const forgets = brought(world.brings(), 'forgets').find(({ what }) => what === 'minutes');
      return forgets?.run(new AbortController().signal);
    };
    await write();
    await world.clock.advance(METRICS_KEEP_MS - 1);
    await write();
    expect(await forget()).toBe(0);
    await world.clock.advance(1);
    expect(await forget()).toBe(2);
  });
});

describe('requests to models', () => {
  const receipt = (id: string, model: string, more: { openedMs: number; closedMs: number | null; ending: string }) =>
    world.db.tx('test.receipt', (tx) =>
      tx.run(
        sql`insert into request_receipts (id, org_id, api_key_id, request_id, model_id, tier, state, held_ucents, charged_ucents, opened_ms,
              closed_ms, ending)
            values (${id}, 'o', 'k', ${id}, ${model}, 'serverless', 'x', 0, 0, ${more.openedMs}, ${more.closedMs}, ${more.ending})`,
      ),
    );

  test('have their rate, their p95 and their failures of five minutes, by model', async () => {
    await world.clock.advance(HOUR_MS);
    const nowMs = world.clock.now();
    for (let n = 1; n <= 20; n += 1)
      await receipt(`a${n}`, 'a', { openedMs: nowMs - n * 1_000, closedMs: nowMs - n * 900, ending: 'completed' });
    await receipt('a-old', 'a', { openedMs: 0, closedMs: nowMs - 300_000, ending: 'completed' });
    await receipt('b1', 'b', { openedMs: nowMs - 90_000, closedMs: nowMs - 1, ending: 'upstream_failed' });
    await receipt('b2', 'b', { openedMs: nowMs - 90_000, closedMs: nowMs - 1, ending: 'client_left' });
    expect((await read()).traffic).toEqual([
      { model: 'a', requests: 20, requests_per_second: 20 / 300, p95_ms: 1_900, failed: 0 },
      { model: 'b', requests: 2, requests_per_second: 2 / 300, p95_ms: null, failed: 1 },
    ]);
  });
});
