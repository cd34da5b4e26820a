// The operator's search over transfers: by organisation, subject and kind, as pages and as CSV.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import type { Http } from '../../../control-plane/base/http/server.ts';
import { runCommand } from '../../kit/operator-commands.ts';
import { openOperator } from '../../kit/operator.ts';
import { openWorld, type World } from '../../kit/world.ts';

const MINUTE_MS = 60_000;

let world: World;
let http: Http;
/** Each has three charges of `job-<name>-<n>`, one cent of it given back, and its own first money. */
let orgs: string[];

beforeEach(async () => {
  world = await openWorld();
  ({ http } = openOperator(world));
  orgs = [];
  for (const name of ['a', 'b']) {
    const { orgId } = await world.customer(1_000);
    orgs.push(orgId);
    await world.clock.advance(1);
    for (const n of [1, 2, 3]) await post(`${name}${n}`, { orgId, subjectId: `job-${name}-${n}`, kind: 'test.charge' });
    await post(`${name}-back`, { orgId, subjectId: `job-${name}-1`, kind: 'test.back', isBack: true });
  }
  await world.clock.advance(2 * MINUTE_MS);
});
afterEach(async () => {
  await http.close();
  await world.close();
});

interface Posted {
  orgId: string;
  subjectId: string;
  kind: string;
  isBack?: boolean;
}

async function post(id: string, { orgId, subjectId, kind, isBack = false }: Posted): Promise<void> {
  const [debit, credit] = isBack ? [revenue, wallet(orgId)] : [wallet(orgId), revenue];
  const about = { id, kind, subjectId, effectiveMs: world.clock.now(), amountUcents: 1_000_000n };
  await world.db.tx('test.post', (tx) => world.rooms.ledger.post(tx, id, [{ ...about, debit, credit }]));
  await world.clock.advance(1);
}

async function get(query: Record<string, string>): Promise<{ status: number; body: string }> {
  return http.inject({ method: 'GET', url: `/admin/transfers?${new URLSearchParams(query).toString()}` });
}

/** The ids of all pages of two. */
async function found(query: Record<string, string>): Promise<string[]> {
  const ids: string[] = [];
  for (let cursor: string | null | undefined; cursor !== null;) {
    const { body } = await get({ ...query, limit: '2', ...(cursor !== undefined && { cursor }) });
    const page = JSON.parse(body) as { data: { transfer_id: string }[]; next_cursor: string | null };
    ids.push(...page.data.map((row) => row.transfer_id));
    cursor = page.next_cursor;
  }
  return ids;
}

test('transfers are found by organisation, subject, kind and time, each once and in the order of posting', async () => {
  const [a = '', b = ''] = orgs;
  const all = [`fund:${a}`, 'a1', 'a2', 'a3', 'a-back', `fund:${b}`, 'b1', 'b2', 'b3', 'b-back'];
  expect(await found({})).toEqual(all);
  expect(await found({ org_id: a })).toEqual(all.slice(0, 5));
  expect(await found({ org_id: b, kind: 'test.charge' })).toEqual(['b1', 'b2', 'b3']);
  expect(await found({ subject_id: 'job-a-1' })).toEqual(['a1', 'a-back']);
  expect(await found({ subject_id: 'job-a-1', kind: 'test.back' })).toEqual(['a-back']);
  expect(await found({ subject_id: 'job-a-1', org_id: a })).toEqual(['a1', 'a-back']);
  expect(await found({ subject_id: 'job-a-1', org_id: b })).toEqual([]);
  const [second] = (JSON.parse((await get({ subject_id: 'job-a-2' })).body) as { data: { posted_at: string }[] }).data;
  const at = second?.posted_at ?? '';
  expect(await found({ org_id: a, from: at })).toEqual(['a2', 'a3', 'a-back']);
  expect(await found({ org_id: a, to: at })).toEqual([`fund:${a}`, 'a1']);
});

test('a kind alone is refused, because no index has all kinds', async () => {
  const { status, body } = await get({ kind: 'test.charge' });
  expect([status, JSON.parse(body)]).toMatchObject([
    422,
    { errors: [{ field: 'kind', rule: 'must be given with org_id or subject_id' }] },
  ]);
});

test('transfers of the last minute are left out, of a subject too', async () => {
  await post('late', { orgId: orgs[0] ?? '', subjectId: 'job-late', kind: 'test.charge' });
  await world.clock.advance(MINUTE_MS - 1);
  expect(await found({ subject_id: 'job-late' })).toEqual([]);
  await world.clock.advance(1);
  expect(await found({ subject_id: 'job-late' })).toEqual(['late']);
});

test('the CSV has all of them, as the command prints them', async () => {
  const [a = ''] = orgs;
  const { status, body } = await get({ org_id: a, kind: 'test.charge', format: 'csv', limit: '1' });
  expect(status).toBe(200);
  const window = ['--from', '2000-01-01', '--to', '2100-01-01'];
  const printed = await runCommand(world, ['admin', 'export', ...window, '--org', a, '--kind', 'test.charge']);
  expect(body).toBe(printed);
  expect(body.trimEnd().split('\r\n')).toHaveLength(4);
  const one = await runCommand(world, ['admin', 'export', ...window, '--subject', 'job-a-1']);
  expect(one.trimEnd().split('\r\n')).toHaveLength(3);
  const none = await get({ org_id: 'nobody', format: 'csv' });
  expect(none.body).toMatch(/^transfer_id,[^\r]*,evidence\r\n$/);
});
