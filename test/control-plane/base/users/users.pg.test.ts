// What happens once although two do it at the same moment: links, invitations, codes, device logins, and the last owner of an organisation.
import { generateSync } from 'otplib';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { countRow } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { type Answer, type Api, type ApiAccount, openApi } from '../../../contract/api.ts';
import { addPerson, type Person, tokenIn } from '../../../kit/people.ts';

const PASSWORD = 'correct horse battery';
/** Rounds of each race: one alone may happen to run in order. */
const ROUNDS = 10;

let api: Api;
/** Another process on the same database. */
let beside: Api;
let account: ApiAccount;
beforeEach(async () => {
  api = await openApi();
  beside = await api.beside();
  account = await api.account();
});
afterEach(async () => {
  await beside.http.close();
  await api.close();
});

/** The same request to both processes at once; the statuses, sorted. */
async function race(send: (to: Api, i: number) => Promise<Answer>): Promise<number[]> {
  const answers = await Promise.all([send(api, 0), send(beside, 1)]);
  return answers.map(({ status }) => status).toSorted((a, b) => a - b);
}
const add = (role: 'owner' | 'member' = 'owner'): Promise<Person> =>
  addPerson(api.world, { orgId: account.orgId, role });
/** A new session of the person. */
async function signedInAgain(person: Person): Promise<Person> {
  const visitor = { clientIp: '192.0.2.1', userAgent: 'test', sessionToken: undefined };
  const beginning = { userId: person.userId, visitor, isStrong: false, method: 'password' } as const;
  const { id, token } = await api.world.db.tx('test.session', (tx) =>
    api.world.rooms.users.sessions.begin(tx, beginning),
  );
  return { ...person, sessionId: id, token };
}
const livingKeysOf = async ({ userId }: Person): Promise<number> => {
  const query = sql`select count(*) as count from api_keys where user_id = ${userId} and revoked_ms is null`;
  return (await api.world.db.read.one(countRow, query))?.count ?? 0;
};

test('a link of the operator sets one password', async () => {
  const { userId } = await add();
  for (let round = 0; round < ROUNDS; round += 1) {
    const { url } = await api.world.rooms.users.people.reset(userId);
    const body = { token: url.split('#')[1], password: PASSWORD };
    expect(await race((to) => to.call('POST', '/v1/auth/link', { body }))).toEqual([201, 404]);
  }
});

test('an invitation makes one member', async () => {
  for (let round = 0; round < ROUNDS; round += 1) {
    const made = await api.call('POST', '/v1/invitations', { key: account.key, body: { role: 'member' } });
    const token = String(made.json['url']).split('#')[1];
    const body = (i: number): object => ({ token, email: `p${round}-${i}@example.com`, name: 'P', password: PASSWORD });
    expect(await race((to, i) => to.call('POST', '/v1/invitations/accept', { body: body(i) }))).toEqual([201, 404]);
  }
});

test('an invitation that ends while somebody accepts it lets nobody in', async () => {
  const made = await api.call('POST', '/v1/invitations', { key: account.key, body: { role: 'owner' } });
  const body = { token: String(made.json['url']).split('#')[1], email: 'g@example.com', name: 'G', password: PASSWORD };
  const [deleted, end] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const ending = api.world.db.tx('test.end_invitation', async (tx) => {
    await tx.run(sql`delete from invitations where org_id = ${account.orgId}`);
    deleted.resolve();
    await end.promise;
  });
  await deleted.promise;
  const answer = beside.call('POST', '/v1/invitations/accept', { body });
  await waitForLock();
  end.resolve();
  await ending;
  expect((await answer).status).toBe(404);
});

/** Resolves once a transaction waits for a lock. */
async function waitForLock(): Promise<void> {
  const waiting = sql`select count(*) as count from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
  while (((await api.world.db.read.one(countRow, waiting))?.count ?? 0) === 0);
}

test('one of two sign-ups gets an address', async () => {
  for (let round = 0; round < ROUNDS; round += 1) {
    const body = { email: `s${round}@example.com`, name: 'S', password: PASSWORD, org_name: 'S' };
    expect(await race((to) => to.call('POST', '/v1/auth/sign-up', { body }))).toEqual([201, 409]);
  }
});

test('a code of the authenticator app signs in once, and so does a recovery code', async () => {
  const body = { email: 'ada@example.com', name: 'Ada', password: PASSWORD, org_name: 'A' };
  const signedUp = await api.call('POST', '/v1/auth/sign-up', { body });
  const as = { token: tokenIn(signedUp) ?? '' } as Person;
  const secret = String((await api.call('POST', '/v1/auth/totp', { as })).json['secret']);
  const codeNow = (): string => generateSync({ secret, epoch: Math.floor(api.world.clock.now() / 1000) });
  const confirmed = await api.call('POST', '/v1/auth/totp/confirm', { as, body: { code: codeNow() } });
  const recovery = confirmed.json['recovery_codes'] as string[];
  const signIn = (to: Api, code: string): Promise<Answer> =>
    to.call('POST', '/v1/auth/sign-in', { body: { email: body.email, password: PASSWORD, code } });
  for (const code of recovery.slice(0, ROUNDS)) {
    expect(await race((to) => signIn(to, code))).toEqual([201, 401]);
    await api.world.clock.advance(30_000);
    const now = codeNow();
    expect(await race((to) => signIn(to, now))).toEqual([201, 401]);
  }
});

describe('a device login', () => {
  const begin = async (): Promise<{ device_code: string; user_code: string }> => {
    const scopes = ['instances: read', 'api_keys: write'];
    const begun = await api.call('POST', '/v1/auth/device', { body: { host: 'x', scopes } });
    return begun.json as unknown as { device_code: string; user_code: string };
  };
  const verb = (to: Api, code: string, word: string, as: Person): Promise<Answer> =>
    to.call('POST', `/v1/auth/device/${code}/${word}`, { as });

  test('gives one key', async () => {
    const ada = await add();
    for (let round = 0; round < ROUNDS; round += 1) {
      const codes = await begin();
      await verb(api, codes.user_code, 'approve', ada);
      const body = { device_code: codes.device_code };
      expect(await race((to) => to.call('POST', '/v1/auth/device/token', { body }))).toEqual([200, 400]);
    }
  });

  test('is decided once', async () => {
    const ada = await add();
    for (let round = 0; round < ROUNDS; round += 1) {
      const { user_code: code } = await begin();
      expect(await race((to, i) => verb(to, code, i === 0 ? 'approve' : 'deny', ada))).toEqual([204, 404]);
    }
  });

  test('and its keys leave no key behind if the person uses a link of the operator at the same moment', async () => {
    const ada = await add();
    for (let round = 0; round < ROUNDS; round += 1) {
      const [first, second] = [await begin(), await begin()];
      const as = await signedInAgain(ada);
      for (const codes of [first, second]) await verb(api, codes.user_code, 'approve', as);
      const fetched = await api.call('POST', '/v1/auth/device/token', { body: { device_code: first.device_code } });
      const key = String(fetched.json['access_token']);
      const { url } = await api.world.rooms.users.people.reset(ada.userId);
      const used = { token: url.split('#')[1], password: PASSWORD };
      const [link] = await Promise.all([
        api.call('POST', '/v1/auth/link', { body: used }),
        beside.call('POST', '/v1/auth/device/token', { body: { device_code: second.device_code } }),
        beside.call('POST', '/v1/api-keys', { key, body: { name: 'x', scopes: ['instances: read'] } }),
      ]);
      expect([fetched.status, link.status, await livingKeysOf(ada)]).toEqual([200, 201, 0]);
    }
  });
});

describe('of two owners', () => {
  test('one stays, if both leave at once', async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      account = await api.account();
      const owners = [await add(), await add()];
      const leave = (to: Api, i: number): Promise<Answer> =>
        to.call('POST', '/v1/members/leave', { as: owners[i] ?? owners[0] } as { as: Person });
      expect(await race(leave)).toEqual([204, 409]);
    }
  });

  test('one stays, if each makes the other less at once', async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      account = await api.account();
      const [ada, bob] = [await add(), await add()];
      const demote = (to: Api, i: number): Promise<Answer> => {
        const [as, other] = i === 0 ? [ada, bob] : [bob, ada];
        return to.call('PATCH', `/v1/members/${other.userId}`, { as, body: { role: 'member' } });
      };
      const statuses = await race(demote);
      // The second one is refused because it is no owner any more, or because the first is the last.
      expect(statuses[0]).toBe(200);
      expect([403, 409]).toContain(statuses[1]);
    }
  });
});

test('a suspension reaches another process within five seconds, also for a key that it knows', async () => {
  const chat = (): Promise<Answer> =>
    beside.call('POST', '/v1/chat/completions', {
      key: account.key,
      body: { model: 'x/y', messages: [{ role: 'user', content: 'x' }] },
    });
  expect((await chat()).status).toBe(404);
  await api.world.rooms.accounts.suspendOrg(account.orgId, 'unpaid');
  await api.world.clock.advance(5_000);
  expect((await chat()).status).toBe(403);
});
