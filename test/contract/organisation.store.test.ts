// GET /v1/organisation: what an organisation sees of itself, and how the operator's suspension changes it.
import { expect, test } from 'vitest';
import { z } from 'zod';
import { PLATFORM_ORG } from '../../control-plane/base/accounts/accounts.ts';
import { text } from '../../control-plane/base/db/columns.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import { Org } from '../../shared/api/account.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

openApiForEachTest();

const shown = async (): Promise<Org> => {
  const { status, json } = await api.call('GET', '/v1/organisation', { key: owner.key });
  expect(status).toBe(200);
  return Org.parse(json);
};
const accounts = (): typeof api.world.rooms.accounts => api.world.rooms.accounts;

test('an organisation sees itself', async () => {
  expect(await shown()).toMatchObject({ id: owner.orgId, suspended_at: null, suspended_reason: null });
});

test('a suspended organisation sees since when and why, until it is resumed', async () => {
  const since = new Date(api.world.clock.now()).toISOString();
  await accounts().suspendOrg(owner.orgId, 'unpaid');
  expect(await shown()).toMatchObject({ suspended_at: since, suspended_reason: 'unpaid' });
  await accounts().resumeOrg(owner.orgId);
  expect(await shown()).toMatchObject({ suspended_at: null, suspended_reason: null });
});

test('a second suspension replaces the reason, and the organisation stays suspended since the first one', async () => {
  const since = new Date(api.world.clock.now()).toISOString();
  await accounts().suspendOrg(owner.orgId, 'unpaid');
  await api.world.clock.advance(60_000);
  await accounts().suspendOrg(owner.orgId, 'unpaid for a month');
  expect(await shown()).toMatchObject({ suspended_at: since, suspended_reason: 'unpaid for a month' });
});

test('a change that changes nothing is no event', async () => {
  await accounts().resumeOrg(owner.orgId);
  await accounts().suspendOrg(owner.orgId, 'unpaid');
  await accounts().suspendOrg(owner.orgId, 'unpaid');
  const events = await api.world.db.read.all(
    z.object({ type: text }),
    sql`select type from events where subject_id = ${owner.orgId} order by created_ms, id`,
  );
  expect(events).toEqual([{ type: 'org.suspended' }]);
});

test("the platform's own organisation cannot be suspended", async () => {
  await expect(accounts().suspendOrg(PLATFORM_ORG, 'unpaid')).rejects.toThrow('is this service itself');
});
