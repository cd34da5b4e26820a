// Members and invitations: who may change whom, links that work once, and an organisation that keeps an owner.
import type { Mail } from '../../../../control-plane/base/mail/mail.ts';
import { scopesOfRole } from '../../../../control-plane/base/users/roles.ts';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import {
  INVITATION_MAILS_PER_ADDRESS_MAX,
  INVITATION_MAILS_PER_ORG_MAX,
  INVITATIONS_PER_ORG_MAX,
} from '../../../../shared/limits.ts';
import type { Role } from '../../../../shared/api/auth.ts';
import { type Answer, type Api, type ApiAccount, openApi } from '../../../contract/api.ts';
import { addPerson, type Person, tokenIn } from '../../../kit/people.ts';

const DAY_MS = 86_400_000;
const PASSWORD = 'correct horse battery';

let api: Api;
let account: ApiAccount;
let owner: Person;
beforeEach(async () => {
  api = await openApi();
  account = await api.account();
  owner = await addPerson(api.world, { orgId: account.orgId, role: 'owner' });
});
afterEach(() => api.close());

const add = (role: Role): Promise<Person> => addPerson(api.world, { orgId: account.orgId, role });
const setRole = (as: Person, who: Person, role: Role): Promise<Answer> =>
  api.call('PATCH', `/v1/members/${who.userId}`, { as, body: { role } });
const remove = (as: Person, who: Person): Promise<Answer> => api.call('DELETE', `/v1/members/${who.userId}`, { as });
const leave = (as: Person): Promise<Answer> => api.call('POST', '/v1/members/leave', { as });
const roleOf = async (who: Person): Promise<unknown> => {
  const { json } = await api.call('GET', '/v1/members', { as: owner });
  return json.data?.find((entry) => entry['user_id'] === who.userId)?.['role'];
};

describe('a member', () => {
  test('gets another role, which counts from the next request on', async () => {
    const bob = await add('read-only');
    const rename = (): Promise<Answer> => api.call('PATCH', '/v1/instances/x', { as: bob, body: { name: 'x' } });
    expect(await rename()).toMatchObject({ status: 403, json: { code: 'insufficient_scope' } });
    expect((await setRole(owner, bob, 'member')).json).toMatchObject({ user_id: bob.userId, role: 'member' });
    expect((await rename()).status).toBe(404);
    expect(await api.world.journal(bob.userId)).toEqual(['session.created', 'member.changed']);
  });

  test('who is removed keeps the account and loses the organisation at once', async () => {
    const bob = await add('member');
    expect((await remove(owner, bob)).status).toBe(204);
    expect(await api.call('GET', '/v1/instances', { as: bob })).toMatchObject({
      status: 403,
      json: { code: 'insufficient_scope' },
    });
    expect((await api.call('GET', '/v1/auth/session', { as: bob })).json).toMatchObject({ org: null, scopes: [] });
    expect((await remove(owner, bob)).status).toBe(404);
  });

  test('may leave, whatever the role, and changes nobody else', async () => {
    const bob = await add('read-only');
    expect((await remove(bob, owner)).status).toBe(403);
    expect((await leave(bob)).status).toBe(204);
    expect(await roleOf(bob)).toBeUndefined();
  });

  test('of another organisation is not found', async () => {
    const stranger = await addPerson(api.world, { orgId: (await api.account()).orgId, role: 'owner' });
    expect((await setRole(stranger, owner, 'member')).status).toBe(404);
    expect((await remove(stranger, owner)).status).toBe(404);
  });
});

describe('the last owner', () => {
  test('can neither leave nor become less, until there is another', async () => {
    for (const answer of [await leave(owner), await setRole(owner, owner, 'member'), await remove(owner, owner)])
      expect(answer).toMatchObject({ status: 409, json: { code: 'conflict' } });
    const bob = await add('member');
    expect((await setRole(owner, bob, 'owner')).status).toBe(200);
    expect((await leave(owner)).status).toBe(204);
  });
});

describe('an API key', () => {
  test('gives no role that may do more than the key', async () => {
    const { key } = await api.world.rooms.accounts.createKey({
      orgId: account.orgId,
      name: 'hr',
      scopes: ['members: write', ...scopesOfRole('billing')],
      expiresMs: null,
    });
    const invite = (role: Role): Promise<Answer> => api.call('POST', '/v1/invitations', { key, body: { role } });
    expect((await invite('billing')).status).toBe(201);
    for (const role of ['owner', 'member', 'read-only'] as const)
      expect(await invite(role)).toMatchObject({ status: 403, json: { code: 'insufficient_scope' } });
    const demoted = await api.call('PATCH', `/v1/members/${owner.userId}`, { key, body: { role: 'billing' } });
    expect(demoted.status).toBe(403);
    const bob = await add('billing');
    const raised = await api.call('PATCH', `/v1/members/${bob.userId}`, { key, body: { role: 'owner' } });
    expect(raised).toMatchObject({ status: 403, json: { code: 'insufficient_scope' } });
  });
});

describe('an invitation', () => {
  const invite = async (body: object = { role: 'member' }): Promise<Answer> =>
    api.call('POST', '/v1/invitations', { as: owner, body });
  const tokenOf = ({ json }: Answer): string => String(json['url']).split('#')[1] ?? '';
  const accept = (token: string, email = 'bob@example.com'): Promise<Answer> =>
    api.call('POST', '/v1/invitations/accept', { body: { token, email, name: 'Bob', password: PASSWORD } });
  const join = (token: string, as: Person): Promise<Answer> =>
    api.call('POST', '/v1/invitations/join', { as, body: { token } });

  test('makes a new person a member with its role, once', async () => {
    const made = await invite();
    expect(made.json['url']).toMatch(/^https:\/\/api\.example\.com\/invitation#[\w-]{43}$/);
    const answer = await accept(tokenOf(made));
    expect(answer).toMatchObject({ status: 201, json: { org: { id: account.orgId, role: 'member' } } });
    expect(tokenIn(answer)).toBeDefined();
    expect((await accept(tokenOf(made), 'eve@example.com')).status).toBe(404);
    expect((await api.call('GET', '/v1/invitations', { as: owner })).json.data).toEqual([]);
  });

  test('lets a person with an account join, and the session acts for the new organisation', async () => {
    const bob = await addPerson(api.world, undefined);
    const token = tokenOf(await invite({ role: 'billing' }));
    const joined = await join(token, bob);
    expect(joined).toMatchObject({ status: 200, json: { org: { id: account.orgId, role: 'billing' } } });
    expect((await join(token, bob)).status).toBe(401);
    const again = { ...bob, token: tokenIn(joined) ?? '' };
    expect((await join(tokenOf(await invite()), again)).status).toBe(409);
  });

  test('tells the holder of its link the organisation, the role and who invites, until it is used', async () => {
    const show = (token: string): Promise<Answer> => api.call('POST', '/v1/invitations/show', { body: { token } });
    const { json: session } = await api.call('GET', '/v1/auth/session', { as: owner });
    const made = await invite({ role: 'billing', email: 'bob@example.com' });
    const byKey = await api.call('POST', '/v1/invitations', { key: account.key, body: { role: 'member' } });
    expect(await show(tokenOf(made))).toMatchObject({
      status: 200,
      json: {
        org_name: (session['org'] as { name: string }).name,
        role: 'billing',
        invited_by: { name: (session['user'] as { name: string }).name, email: owner.email },
        email: 'bob@example.com',
        expires_at: made.json['expires_at'],
      },
    });
    expect((await show(tokenOf(byKey))).json).toMatchObject({ role: 'member', invited_by: null, email: null });
    expect((await show(String(made.json['id']))).status).toBe(404);
    expect((await accept(tokenOf(made))).status).toBe(201);
    expect(await show(tokenOf(made))).toMatchObject({ status: 404, json: { code: 'not_found' } });
  });

  test('for an address is worth nothing to others, and is not used up by them', async () => {
    const token = tokenOf(await invite({ role: 'member', email: 'Bob@Example.com' }));
    expect((await accept(token, 'eve@example.com')).status).toBe(404);
    expect((await accept(token, 'bob@example.com')).status).toBe(201);
  });

  test('does not take over an account that exists', async () => {
    const refused = await accept(tokenOf(await invite()), owner.email);
    expect(refused).toMatchObject({ status: 409, json: { code: 'conflict' } });
  });

  test('counts tries to accept it, and forgets them with a success', async () => {
    const token = tokenOf(await invite());
    for (let i = 0; i < 4; i += 1) expect((await accept(token, owner.email)).status).toBe(409);
    expect((await accept(tokenOf(await invite()), 'ann@example.com')).status).toBe(201);
    expect((await accept(token, owner.email)).status).toBe(409);
    expect(await accept(token, owner.email)).toMatchObject({ status: 429, json: { code: 'rate_limit_exceeded' } });
    expect((await accept(token)).status).toBe(201);
  });

  test.each(['removed', 'made read-only'])(
    'ends if the owner who made it is %s, and brings nobody back',
    async (what) => {
      const eve = await add('owner');
      const made = await api.call('POST', '/v1/invitations', { as: eve, body: { role: 'owner' } });
      const member = `/v1/members/${eve.userId}`;
      const changed =
        what === 'removed'
          ? await api.call('DELETE', member, { as: owner })
          : await api.call('PATCH', member, { as: owner, body: { role: 'read-only' } });
      expect(changed.status).toBeLessThan(300);
      expect((await accept(tokenOf(made))).status).toBe(404);
      expect((await api.call('GET', '/v1/invitations', { as: owner })).json.data).toEqual([]);
      expect(await api.world.journal(String(made.json['id']))).toEqual(['invitation.created', 'invitation.revoked']);
    },
  );

  test('stays when its maker may still give that role', async () => {
    const eve = await add('owner');
    const made = await api.call('POST', '/v1/invitations', { as: eve, body: { role: 'read-only' } });
    await api.call('PATCH', `/v1/members/${eve.userId}`, { as: owner, body: { role: 'member' } });
    expect((await accept(tokenOf(made))).status).toBe(201);
  });

  test('ends after seven days, and when it is revoked', async () => {
    const late = tokenOf(await invite());
    await api.world.clock.advance(7 * DAY_MS);
    expect((await accept(late)).status).toBe(404);
    owner = await add('owner');
    const made = await invite();
    expect((await api.call('DELETE', `/v1/invitations/${String(made.json['id'])}`, { as: owner })).status).toBe(204);
    expect((await accept(tokenOf(made))).status).toBe(404);
    const early = tokenOf(await invite());
    await api.world.clock.advance(7 * DAY_MS - 1);
    expect((await accept(early)).status).toBe(201);
  });

  test('is stored as a hash, and its stored reply is sealed', async () => {
    const headers = { 'idempotency-key': 'i1' };
    const made = await api.call('POST', '/v1/invitations', { as: owner, headers, body: { role: 'member' } });
    const again = await api.call('POST', '/v1/invitations', { as: owner, headers, body: { role: 'member' } });
    expect(again.body).toBe(made.body);
    expect(again.headers['idempotent-replayed']).toBe('true');
    const rows = await api.world.db.read.all(
      z.object({ token_hash: text, body: text }),
      sql`select i.token_hash, k.body from invitations i join idempotency_keys k on 1 = 1`,
    );
    expect(rows).toHaveLength(1);
    expect(JSON.stringify(rows)).not.toContain(tokenOf(made));
  });

  test('is one of a limited number', async () => {
    for (let i = 0; i < INVITATIONS_PER_ORG_MAX; i += 1) expect((await invite()).status).toBe(201);
    expect(await invite()).toMatchObject({ status: 409, json: { code: 'conflict' } });
  });
});

describe('a mail server', () => {
  test('gets the link of an invitation that has an address, and no other', async () => {
    await api.close();
    const sent: { to: string; text: string }[] = [];
    const mail: Mail = { isConfigured: true, send: async (given) => (sent.push(given), true) };
    api = await openApi({ mail });
    const { key } = await api.account();
    const open = await api.call('POST', '/v1/invitations', { key, body: { role: 'member' } });
    expect([open.json['mailed'], sent]).toEqual([false, []]);
    const made = await api.call('POST', '/v1/invitations', { key, body: { role: 'billing', email: 'b@example.com' } });
    expect(made.json['mailed']).toBe(true);
    // The subject has no words of the organisation.
    expect(sent).toMatchObject([
      { to: 'b@example.com', subject: 'Invitation to an organisation on api.example.com', about: made.json['id'] },
    ]);
    expect(sent[0]?.text).toContain(String(made.json['url']));
    expect(sent[0]?.text).toContain('the organisation "customer" on api.example.com as billing');
  });

  test(`sends an address ${INVITATION_MAILS_PER_ADDRESS_MAX} invitations a day, whoever invites and revokes`, async () => {
    await api.close();
    const sent: string[] = [];
    const send = async ({ to }: { to: string }): Promise<boolean> => {
      sent.push(to);
      return true;
    };
    api = await openApi({ mail: { isConfigured: true, send } });
    const keys = [(await api.account()).key, (await api.account()).key];
    const mailed = async (n: number, email = 'victim@example.com'): Promise<unknown> => {
      const key = keys[n % 2] ?? '';
      const { status, json } = await api.call('POST', '/v1/invitations', { key, body: { role: 'member', email } });
      expect(status).toBe(201);
      const { id, mailed: isMailed } = json as { id: string; mailed: boolean };
      expect((await api.call('DELETE', `/v1/invitations/${id}`, { key })).status).toBe(204);
      return isMailed;
    };
    for (let n = 0; n < INVITATION_MAILS_PER_ADDRESS_MAX; n += 1) expect(await mailed(n)).toBe(true);
    expect([await mailed(0), await mailed(1), await mailed(0, 'bob@example.com')]).toEqual([false, false, true]);
    expect(sent).toHaveLength(INVITATION_MAILS_PER_ADDRESS_MAX + 1);
    await api.world.clock.advance(DAY_MS - 1);
    expect(await mailed(0)).toBe(false);
    await api.world.clock.advance(1);
    expect(await mailed(0)).toBe(true);
  });

  test('that refuses a mail is not said to have it, also in a repeated answer, and its address has not had it', async () => {
    await api.close();
    let takes = false;
    api = await openApi({ mail: { isConfigured: true, send: async () => takes } });
    const { key } = await api.account();
    const body = { role: 'member', email: 'victim@example.com' };
    const invite = (n: number): Promise<Answer> =>
      api.call('POST', '/v1/invitations', { key, body, headers: { 'idempotency-key': `i${n}` } });
    for (let n = 0; n <= INVITATION_MAILS_PER_ADDRESS_MAX; n += 1) {
      const made = await invite(n);
      expect(made).toMatchObject({ status: 201, json: { mailed: false } });
      const again = await invite(n);
      expect([again.body, again.headers['idempotent-replayed']]).toEqual([made.body, 'true']);
    }
    takes = true;
    for (let n = 0; n < INVITATION_MAILS_PER_ADDRESS_MAX; n += 1)
      expect([(await invite(10 + n)).json['mailed'], (await invite(10 + n)).json['mailed']]).toEqual([true, true]);
    expect((await invite(99)).json['mailed']).toBe(false);
  });

  test(`that refuses all mails is asked ${INVITATION_MAILS_PER_ORG_MAX} times a day for an organisation`, async () => {
    await api.close();
    let tries = 0;
    api = await openApi({ mail: { isConfigured: true, send: async () => ((tries += 1), false) } });
    const { key } = await api.account();
    for (let n = 0; n < INVITATION_MAILS_PER_ORG_MAX + 5; n += 1) {
      const body = { role: 'member', email: `nobody${n}@example.com` };
      const { json } = await api.call('POST', '/v1/invitations', { key, body });
      expect(json['mailed']).toBe(false);
      await api.call('DELETE', `/v1/invitations/${String(json['id'])}`, { key });
      await api.world.clock.advance(1_000);
    }
    expect(tries).toBe(INVITATION_MAILS_PER_ORG_MAX);
  });

  test('that is not configured is never named', async () => {
    const body = { role: 'member', email: 'b@example.com' };
    expect((await api.call('POST', '/v1/invitations', { as: owner, body })).json['mailed']).toBe(false);
    expect(await api.world.db.read.all(z.object({ subject: text }), sql`select subject from mail_counts`)).toEqual([]);
  });
});

describe('who may make an account', () => {
  const sign = (): Promise<Answer> =>
    api.call('POST', '/v1/auth/sign-up', {
      body: { email: 'new@example.com', name: 'New', password: PASSWORD, org_name: 'New' },
    });
  test.each([
    ['open', 201, 201],
    ['invite', 403, 201],
    ['closed', 403, 403],
  ] as const)('with the policy %s: sign-up %i, invitation %i', async (signUpPolicy, signedUp, accepted) => {
    await api.close();
    api = await openApi({ settings: { signUpPolicy } });
    const { orgId } = await api.account();
    const inviter = await addPerson(api.world, { orgId, role: 'owner' });
    const made = await api.call('POST', '/v1/invitations', { as: inviter, body: { role: 'member' } });
    expect((await sign()).status).toBe(signedUp);
    const body = {
      token: String(made.json['url']).split('#')[1],
      email: 'b@example.com',
      name: 'B',
      password: PASSWORD,
    };
    expect((await api.call('POST', '/v1/invitations/accept', { body })).status).toBe(accepted);
  });
});
