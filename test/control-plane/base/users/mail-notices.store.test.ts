// Each person can turn mails about its organisations off, and only those who can act get them.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { rolesWith } from '../../../../control-plane/base/users/roles.ts';
import { mailedMembers, setBlocked } from '../../../../control-plane/base/users/store.ts';
import type { Role } from '../../../../shared/api/auth.ts';
import { type Api, openApi } from '../../../contract/api.ts';
import { addPerson, type Person } from '../../../kit/people.ts';

let api: Api;
let orgId: string;
beforeEach(async () => {
  api = await openApi();
  ({ orgId } = await api.account());
});
afterEach(() => api.close());

const add = (role: Role): Promise<Person> => addPerson(api.world, { orgId, role });
const mailed = async (more: { roles?: readonly Role[]; userId?: string; limit?: number } = {}): Promise<string[]> => {
  const rows = await mailedMembers(api.world.db.read, orgId, { roles: ['owner', 'member'], limit: 9, ...more });
  return rows.map(({ email }) => email);
};

test('a person turns the mails off and on again, and the session says so', async () => {
  const [ada, bob] = [await add('owner'), await add('owner')];
  expect((await api.call('GET', '/v1/auth/session', { as: ada })).json).toMatchObject({ mail_notices: true });
  const set = (wants: unknown): ReturnType<Api['call']> =>
    api.call('POST', '/v1/auth/notices', { as: ada, body: { mail_notices: wants } });
  expect(await set(false)).toMatchObject({ status: 200, json: { mail_notices: false, user: { id: ada.userId } } });
  expect(await mailed()).toEqual([bob.email]);
  expect((await api.call('GET', '/v1/auth/session', { as: bob })).json).toMatchObject({ mail_notices: true });
  expect(await set(true)).toMatchObject({ status: 200, json: { mail_notices: true } });
  expect((await mailed()).toSorted()).toEqual([ada.email, bob.email].toSorted());
  expect(await set('no')).toMatchObject({ status: 422, json: { code: 'validation_failed' } });
});

test('members with the roles are mailed, owners first, as many as are asked for, and nobody who is blocked', async () => {
  const member = await add('member');
  await api.world.clock.advance(1);
  const owner = await add('owner');
  await add('billing');
  const elsewhere = await api.account();
  await addPerson(api.world, { orgId: elsewhere.orgId, role: 'owner' });
  expect(await mailed()).toEqual([owner.email, member.email]);
  expect(await mailed({ limit: 1 })).toEqual([owner.email]);
  expect(await mailed({ userId: member.userId })).toEqual([member.email]);
  expect(await mailed({ userId: member.userId, roles: ['owner'] })).toEqual([]);
  await api.world.db.tx('test.block', (tx) => setBlocked(tx, owner.userId, 1));
  expect(await mailed()).toEqual([member.email]);
});

test('who adds funds, runs instances or supplies machines follows from the roles', () => {
  expect(rolesWith('deposits:write')).toEqual(['owner', 'member', 'billing']);
  expect(rolesWith('instances:write')).toEqual(['owner', 'member']);
  expect(rolesWith('supply:write')).toEqual(['owner', 'member']);
});
