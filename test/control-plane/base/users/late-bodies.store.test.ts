// A request is let in before its body is read. Whoever holds the body back until the rights are gone gets nothing for it.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Role } from '../../../../shared/api/auth.ts';
import type { Call, Caller } from '../../../../control-plane/base/http/route.ts';
import { type Api, type ApiAccount, openApi } from '../../../contract/api.ts';
import { addPerson, type Person } from '../../../kit/people.ts';

let api: Api;
let account: ApiAccount;
let owner: Person;
let eve: Person;
beforeEach(async () => {
  api = await openApi();
  account = await api.account();
  owner = await add('owner');
  eve = await add('owner');
});
afterEach(() => api.close());

const add = (role: Role): Promise<Person> => addPerson(api.world, { orgId: account.orgId, role });

/** The caller as it was when the head of its request came. */
async function admitted(person: Person): Promise<Caller> {
  const caller = await api.world.rooms.users.sessions.authenticate(person.token);
  if (caller === undefined) throw new Error('the session is over');
  return caller;
}

/** The body of a request that was let in before has come. Returns the code of the refusal. */
async function finish(operationId: string, caller: Caller, parts: object): Promise<unknown> {
  const route = api.routes.find((each) => each.operationId === operationId);
  const call = { caller, settle: async () => undefined, ...parts } as unknown as Call<unknown, unknown, unknown>;
  return route?.handler(call).then(
    ({ status }) => status,
    (error: unknown) => Reflect.get(error as object, 'code'),
  );
}

/** Makes an invitation as the owner, and returns its token. */
async function invitation(): Promise<string> {
  const { json } = await api.call('POST', '/v1/invitations', { as: owner, body: { role: 'billing' } });
  return String(json['url']).split('#')[1] ?? '';
}

const GIVING = [
  ['createApiKey', () => ({ body: { name: 'x', scopes: ['instances: read'] } })],
  ['createSshKey', () => ({ body: { name: 'x', public_key: 'ssh-ed25519 x' } })],
  ['createInvitation', () => ({ body: { role: 'owner' } })],
  ['revokeInvitation', () => ({ params: { id: 'inv_1' } })],
  ['changeMember', () => ({ params: { user_id: eve.userId }, body: { role: 'owner' } })],
  ['removeMember', () => ({ params: { user_id: owner.userId } })],
] as const;

test.each(GIVING)('%s is refused to a person who was removed or made less meanwhile', async (operationId, parts) => {
  const caller = await admitted(eve);
  const member = `/v1/members/${eve.userId}`;
  expect((await api.call('PATCH', member, { as: owner, body: { role: 'billing' } })).status).toBe(200);
  expect(await finish(operationId, caller, parts())).toBe('insufficient_scope');
  expect((await api.call('DELETE', member, { as: owner })).status).toBe(204);
  expect(await finish(operationId, caller, parts())).toBe('insufficient_scope');
});

test.each(GIVING)('%s is refused to a session that has ended meanwhile', async (operationId, parts) => {
  const caller = await admitted(eve);
  await api.world.rooms.users.sessions.end(eve.userId, eve.sessionId);
  expect(await finish(operationId, caller, parts())).toBe('unauthorized');
});

test.each([
  ['enrolTotp', async () => ({})],
  ['removeTotp', async () => ({})],
  ['makeRecoveryCodes', async () => ({})],
  ['removePasskey', async () => ({ params: { id: 'cred_1' } })],
  ['joinOrg', async () => ({ body: { token: await invitation() } })],
] as const)('%s is refused to a session that has ended meanwhile', async (operationId, parts) => {
  const given = await parts();
  const caller = await admitted(eve);
  await api.world.rooms.users.sessions.end(eve.userId, eve.sessionId);
  expect(await finish(operationId, caller, given)).toBe('unauthorized');
});

test('an API key that was revoked meanwhile changes no member', async () => {
  const caller = await api.world.rooms.accounts.authenticate(account.key, { confirmsKey: false });
  if (caller === undefined) throw new Error('the key is unknown');
  await api.world.rooms.accounts.revokeKey(account.principalId);
  const parts = { params: { user_id: eve.userId }, body: { role: 'billing' } };
  expect(await finish('changeMember', caller, parts)).toBe('unauthorized');
});

test('a session that has ended meanwhile approves no program', async () => {
  const begun = await api.call('POST', '/v1/auth/device', { body: { host: 'x', scopes: ['instances: read'] } });
  const parts = { params: { user_code: String(begun.json['user_code']) } };
  const caller = await admitted(eve);
  await api.world.rooms.users.sessions.end(eve.userId, eve.sessionId);
  expect(await finish('approveDeviceLogin', caller, parts)).toBe('unauthorized');
});

test('a person who was removed meanwhile leaves no second time', async () => {
  const caller = await admitted(eve);
  await api.call('DELETE', `/v1/members/${eve.userId}`, { as: owner });
  expect(await finish('leaveOrg', caller, {})).toBe('not_found');
});

describe('a payout destination', () => {
  const parts = { body: { chain: 'base', address: '0x52908400098527886E0F7030069857D2E4169EE7' } };
  beforeEach(async () => {
    expect((await api.call('POST', '/v1/community/supplier', { as: owner })).status).toBe(200);
  });
  const destination = async (): Promise<unknown> =>
    (await api.call('GET', '/v1/community/payout-destination', { as: owner })).json['destination'];

  test('is not set with an API key that was revoked meanwhile', async () => {
    const caller = await api.world.rooms.accounts.authenticate(account.key, { confirmsKey: false });
    if (caller === undefined) throw new Error('the key is unknown');
    await api.world.rooms.accounts.revokeKey(account.principalId);
    expect(await finish('changePayoutDestination', caller, parts)).toBe('unauthorized');
    expect(await destination()).toBeNull();
  });

  test('is not set by a person who was removed meanwhile, or whose session has ended', async () => {
    const [removed, ended] = [await admitted(eve), await admitted(owner)];
    expect((await api.call('DELETE', `/v1/members/${eve.userId}`, { as: owner })).status).toBe(204);
    expect(await finish('changePayoutDestination', removed, parts)).toBe('insufficient_scope');
    expect(await destination()).toBeNull();
    await api.world.rooms.users.sessions.end(owner.userId, owner.sessionId);
    expect(await finish('changePayoutDestination', ended, parts)).toBe('unauthorized');
  });
});
