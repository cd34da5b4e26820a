// A request that names the session of its page is refused if the cookie is of another session.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Answer, type Api, type ApiAccount, openApi } from '../../contract/api.ts';
import { addPerson, cookieOf, type Person } from '../../kit/people.ts';

let api: Api;
let account: ApiAccount;
let ada: Person;
beforeEach(async () => {
  api = await openApi();
  account = await api.account();
  ada = await addPerson(api.world, { orgId: account.orgId, role: 'owner' });
});
afterEach(() => api.close());

const INVITED = { role: 'member' };

/** The people whom a page that shows ada's session sees or invites, with the cookie of this token. */
const list = (token: string): Promise<Answer> => api.call('GET', '/v1/members', { headers: headersOf(token) });
const invite = (token: string): Promise<Answer> =>
  api.call('POST', '/v1/invitations', { headers: headersOf(token), body: INVITED });

function headersOf(token: string): Record<string, string> {
  return { ...cookieOf({ token }), 'svc-session': ada.sessionId };
}

test('a page that shows the session of the cookie is answered, also after a confirmation has replaced the token', async () => {
  expect((await list(ada.token)).status).toBe(200);
  const { db } = api.world.core;
  const { sessions } = api.world.rooms.users;
  const { token } = await db.tx('test.confirm', (tx) => sessions.confirm(tx, ada.sessionId, { isStrong: false }));
  expect((await list(token)).status).toBe(200);
  expect((await invite(token)).status).toBe(201);
});

test('a page that shows another session is told to load again, and changes nothing', async () => {
  const other = await api.account();
  const bob = await addPerson(api.world, { orgId: other.orgId, role: 'owner' });
  for (const answer of [await list(bob.token), await invite(bob.token)]) {
    expect(answer).toMatchObject({ status: 401, json: { code: 'unauthorized' } });
    expect(answer.json['detail']).toContain('Load the page again');
  }
  expect((await api.call('GET', '/v1/invitations', other)).json.data).toEqual([]);
  // A program names no session.
  expect((await api.call('GET', '/v1/members', { as: bob })).status).toBe(200);
});

test('a request with a key may name any session', async () => {
  const headers = { 'svc-session': 'ses_gone' };
  expect((await api.call('GET', '/v1/members', { key: account.key, headers })).status).toBe(200);
});
