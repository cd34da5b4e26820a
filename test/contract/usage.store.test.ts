// GET /v1/usage (specification 2.8, 4.6, 8): windows, buckets, groupings and pages as a customer asks for them.
import { describe, expect, test } from 'vitest';
import type { Answer } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

openApiForEachTest();

const usage = (query: Record<string, string | number> = {}): Promise<Answer> => {
  const texts = Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]);
  return api.call('GET', `/v1/usage?${new URLSearchParams(texts).toString()}`, { key: owner.key });
};
const rows = async (query: Record<string, string | number> = {}): Promise<Record<string, unknown>[]> => {
  const answer = await usage(query);
  expect(answer.status).toBe(200);
  return answer.json.data ?? [];
};
const iso = (ms: number): string => new Date(ms).toISOString();
const now = (): number => api.world.clock.now();
async function end(id: string): Promise<void> {
  await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
  await api.world.observe(id, { phase: 'removed' });
  await api.world.drive();
}

// Specification 2.8: The grouping key is gpu_type or instance_id.
// Specification 2.8: A row has bucket_start, the grouping key, gpu_seconds and cost_cents.
// Specification 4.6: group_by is instance_id, the default, or gpu_type.
test('rows name the instance, or the GPU type if the request groups by it; running time counts up to now', async () => {
  await api.world.machine({ gpus: 2, dollars: 3.6 });
  const [one, two] = [await api.world.run(owner), await api.world.run(owner)];
  await api.world.clock.advance(HOUR_MS);
  const row = { bucket_start: iso(now() - HOUR_MS), gpu_seconds: 3600, cost_cents: 360, cost: '3.60' };
  const byInstance = [one, two].toSorted().map((id) => ({ ...row, instance_id: id }));
  expect(await rows()).toEqual(byInstance);
  expect(await rows({ group_by: 'instance_id', bucket: 'week' })).toMatchObject(
    byInstance.map(({ gpu_seconds, cost_cents }) => ({ gpu_seconds, cost_cents })),
  );
  expect(await rows({ group_by: 'gpu_type' })).toEqual([
    { ...row, gpu_type: 'H100_SXM', gpu_seconds: 7200, cost_cents: 720, cost: '7.20' },
  ]);
});

// Specification 4.6: The default window is 30 days when start and end are omitted.
// Specification 8: Usage window: 30 days when start and end are omitted.
test('the default window is the last 30 days, cut to the millisecond', async () => {
  await api.world.machine({ dollars: 3.6 });
  const id = await api.world.run(owner);
  await api.world.clock.advance(HOUR_MS);
  await end(id);
  await api.world.clock.advance(30 * DAY_MS - HOUR_MS / 2);
  expect(await rows()).toMatchObject([{ gpu_seconds: 1800, cost_cents: 180 }]);
  await api.world.clock.advance(HOUR_MS / 2 - 1000);
  expect(await rows()).toMatchObject([{ gpu_seconds: 1 }]);
  await api.world.clock.advance(1000);
  expect(await rows()).toEqual([]);
});

// Specification 4.6: start is inclusive, end exclusive, both ISO 8601.
test('start is inclusive and end is exclusive, in the middle of an hour and with any offset', async () => {
  await api.world.machine({ dollars: 3.6 });
  const startedMs = now();
  await api.world.run(owner);
  await api.world.clock.advance(2 * HOUR_MS);
  const window = { start: iso(startedMs + 1_234_567), end: iso(startedMs + 5_234_567), bucket: 'hour' };
  const cut = await rows(window);
  expect(cut).toMatchObject([
    { bucket_start: iso(startedMs), gpu_seconds: 2366 },
    { bucket_start: iso(startedMs + HOUR_MS), gpu_seconds: 1634 },
  ]);
  const elsewhere = { ...window, start: iso(startedMs + 1_234_567 + HOUR_MS).replace('Z', '+01:00') };
  expect(await rows(elsewhere)).toEqual(cut);
  const [left, right] = [
    await rows({ ...window, end: iso(startedMs + 3_000_001) }),
    await rows({ ...window, start: iso(startedMs + 3_000_001) }),
  ];
  const seconds = [...left, ...right].reduce((sum, row) => sum + Number(row['gpu_seconds']), 0);
  expect(seconds).toBe(4000);
});

describe('a moment may be written in every form of ISO 8601', () => {
  // Specification 4.6: start and end are any ISO 8601 date or date-time, with or without an offset.
  test.each([
    '2026-01-31',
    '20260131',
    '2026-W05-6',
    '2026W056',
    '2026-031',
    '2026031',
    '2026-01-31T00',
    '2026-01-31T00:00',
    '2026-01-31T00:00:00',
    '20260131T000000',
    '2026-01-31T00:00:00Z',
    '2026-01-31T00:00:00.000Z',
    '2026-01-31T00:00:00,0Z',
    '20260131T000000Z',
    '2026-01-30T24:00:00Z',
    '2026-01-31T00:00:00+00:00',
    '2026-01-31T02:00:00+02:00',
    '2026-01-31T02:30+0230',
    '2026-01-30T19-05',
    '+002026-01-31',
  ])('%s is accepted', async (start) => {
    await api.world.machine({ dollars: 3.6 });
    const midnight = Date.parse('2026-01-31T00:00:00Z');
    await api.world.clock.advance(midnight - 5_000 - now());
    await api.world.run(owner);
    await api.world.clock.advance(10_000);
    const end = '2026-01-31T01:00:00Z';
    // Five of the ten seconds came after it.
    expect(await rows({ start, end })).toMatchObject([{ gpu_seconds: 5 }]);
    expect(await rows({ start: '2026-01-30', end: start })).toMatchObject([{ gpu_seconds: 5 }]);
  });
});

describe('a window is refused, and the field is named', () => {
  const START = '2026-01-01T00:00:00Z';
  // Specification 4.6: What is no bucket, grouping or window is refused.
  test.each([
    ['backwards', { start: START, end: '2025-01-01T00:00:00Z' }, 'start'],
    ['empty', { start: START, end: START }, 'start'],
    ['too long for its bucket', { start: '2025-01-01T00:00:00Z', end: START, bucket: 'hour' }, 'start'],
    ['in the future without an end', { start: '2126-01-01T00:00:00Z' }, 'start'],
    ['no time', { start: 'yesterday' }, 'start'],
    ['a time of day alone', { start: '10:20' }, 'start'],
    ['a day that there is not', { start: '2026-02-30' }, 'start'],
    ['an offset whose + is a space, as in a URL', { end: '2026-01-31T00:00:00 02:00' }, 'end'],
    ['the name of a time zone', { end: '2026-01-31T00:00:00[Europe/Berlin]' }, 'end'],
    ['longer than any moment', { end: `2026-01-31T00:00:00.${'0'.repeat(60)}Z` }, 'end'],
    ['nothing', { end: '' }, 'end'],
    ['before the first year', { end: '-271821-05-20', bucket: 'month' }, 'end'],
    ['after the last year', { end: '+010000-01-01' }, 'end'],
    ['by a bucket that is none', { bucket: 'year' }, 'bucket'],
    ['by a group that is none', { group_by: 'region' }, 'group_by'],
  ])('%s', async (_what, query, field) => {
    const refused = await usage(query);
    expect(refused).toMatchObject({ status: 422, json: { code: 'validation_failed', errors: [{ field }] } });
  });
});

// Specification 4.6: GET /v1/usage is a page with cursor and limit.
test('all pages show the same moment: no row is skipped or repeated while instances start, run on and end', async () => {
  await api.world.machine({ gpus: 8, dollars: 3.6 });
  const ids = [await api.world.run(owner), await api.world.run(owner), await api.world.run(owner)];
  await api.world.clock.advance(5 * HOUR_MS + 1234);
  const whole = await rows({ limit: 200 });
  expect(whole).toHaveLength(3);
  for (const groupBy of ['instance_id', 'gpu_type']) {
    const query = { bucket: 'hour', group_by: groupBy };
    const atOnce = await rows({ ...query, limit: 200 });
    const walked: unknown[] = [];
    let cursor: string | null | undefined;
    do {
      const page = await usage({ ...query, limit: 2, ...(cursor ? { cursor } : {}) });
      walked.push(...(page.json.data ?? []));
      cursor = page.json.next_cursor;
      ids.push(await api.world.run(owner));
      await api.world.clock.advance(10 * 60_000);
      await end(ids.shift() ?? '');
    } while (cursor);
    expect(walked).toEqual(atOnce);
  }
});

// Specification 4.6: A cursor of usage belongs to its question.
test('a cursor is refused with another query', async () => {
  await api.world.machine({ gpus: 2 });
  await api.world.run(owner);
  await api.world.run(owner);
  await api.world.clock.advance(HOUR_MS);
  const { json } = await usage({ bucket: 'hour', limit: 1 });
  const cursor = String(json.next_cursor);
  expect((await usage({ bucket: 'hour', limit: 1, cursor })).status).toBe(200);
  for (const other of [
    { bucket: 'day' },
    { bucket: 'hour', group_by: 'gpu_type' },
    { bucket: 'hour', start: iso(0) },
  ]) {
    expect(await usage({ ...other, cursor })).toMatchObject({ status: 422, json: { errors: [{ field: 'cursor' }] } });
  }
});
