// The live stream about the account itself: keys, members, invitations, sign-ins and the organisation, and who sees which of them.
import { text as textOf } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Db, raw, sql } from '../../../control-plane/base/db/db.ts';
import { type EventRow, isInSight, openEvents } from '../../../control-plane/base/events/events.ts';
import type { Role } from '../../../shared/api/auth.ts';
import { LiveEvent } from '../../../shared/api/event.ts';
import { type Api, type ApiAccount, openApi } from '../../contract/api.ts';
import { openCall } from '../../contract/live-call.ts';
import { addPerson, type Person } from '../../kit/people.ts';
import { planOf, recordingDb } from '../../kit/recording-db.ts';

let api: Api;
let account: ApiAccount;
let owner: Person;
beforeEach(async () => {
  api = await openApi();
  account = await api.account();
  owner = await addPerson(api.world, { orgId: account.orgId, role: 'owner' });
  // On PostgreSQL the last 15 seconds are read again.
  await api.world.clock.advance(20_000);
});
afterEach(() => api.close());

const add = (role: Role, orgId = account.orgId): Promise<Person> => addPerson(api.world, { orgId, role });

/** What a reader gets while something happens, as the stream and as the page. */
async function seenBy(who: Person | ApiAccount, happens: () => Promise<unknown>): Promise<LiveEvent[]> {
  const stream = await openCall(api, who);
  // The first reader begins a new tail of the journal, which the second tick reads.
  await api.world.rooms.live.tick();
  const all = textOf(stream);
  await happens();
  await api.world.rooms.live.tick();
  await api.world.clock.advance(1);
  api.world.rooms.live.close();
  const sent = (await all).split('\n').flatMap((line) => {
    const data: unknown = line.startsWith('data: ') ? JSON.parse(line.slice('data: '.length)) : {};
    const event = LiveEvent.safeParse(data);
    return event.success ? [event.data] : [];
  });
  const as = 'key' in who ? { key: who.key } : { as: who };
  const { json } = await api.call('GET', '/v1/events', as);
  const ids = new Set(json.data?.map(({ id }) => id));
  expect(sent.filter(({ id }) => !ids.has(id))).toEqual([]);
  return sent;
}
const typesOf = (events: readonly LiveEvent[]): string[] => events.map(({ type }) => type);

describe('the live stream', () => {
  test('shows keys, invitations and members as their own endpoints do, and nothing of them once they are gone', async () => {
    const bob = await add('member');
    const made: Record<string, unknown>[] = [];
    const post = async (path: string, body: object): Promise<Record<string, unknown>> => {
      const { json } = await api.call('POST', path, { as: owner, body });
      made.push(json);
      return json;
    };
    const seen = await seenBy(owner, async () => {
      await post('/v1/api-keys', { name: 'x', scopes: ['instances: read'] });
      await post('/v1/invitations', { role: 'member' });
      await api.call('PATCH', `/v1/members/${bob.userId}`, { as: owner, body: { role: 'billing' } });
    });
    expect(typesOf(seen)).toEqual(['api_key.created', 'invitation.created', 'member.changed']);
    const [key, invitation, member] = seen.map(({ resource }) => resource);
    const { key: _secret, ...shownKey } = made[0] ?? {};
    const { url: _url, mailed: _mailed, ...shownInvitation } = made[1] ?? {};
    expect([key, invitation]).toEqual([shownKey, shownInvitation]);
    expect(member).toMatchObject({ user_id: bob.userId, role: 'billing' });
    const gone = await seenBy(owner, async () => {
      await api.call('DELETE', `/v1/api-keys/${String(made[0]?.['id'])}`, { as: owner });
      await api.call('DELETE', `/v1/invitations/${String(made[1]?.['id'])}`, { as: owner });
      await api.call('DELETE', `/v1/members/${bob.userId}`, { as: owner });
    });
    expect(gone.map(({ type, resource }) => [type, resource === null])).toEqual([
      ['api_key.revoked', false],
      ['invitation.revoked', true],
      ['member.removed', true],
    ]);
    expect(gone[0]?.resource).toMatchObject({ revoked_at: expect.any(String) as string });
  });

  test('tells that an invitation was accepted, and who came', async () => {
    const { json } = await api.call('POST', '/v1/invitations', { as: owner, body: { role: 'member' } });
    const token = String(json['url']).split('#')[1] ?? '';
    const person = { email: 'eve@example.com', name: 'Eve', password: 'correct horse battery' };
    const seen = await seenBy(owner, () => api.call('POST', '/v1/invitations/accept', { body: { token, ...person } }));
    expect(typesOf(seen)).toEqual(['invitation.accepted', 'member.added', 'session.created']);
    expect(seen[1]?.resource).toMatchObject({ email: person.email, role: 'member' });
  });

  test('shows a suspension to whoever may read events, with its reason', async () => {
    const suspend = () => api.world.rooms.accounts.suspendOrg(account.orgId, 'unpaid');
    const seen = await seenBy(await add('billing'), suspend);
    expect(seen).toMatchObject([
      { type: 'org.suspended', reason: 'unpaid', resource: { id: account.orgId, suspended_reason: 'unpaid' } },
    ]);
  });

  test('shows a sign-in to its person and to owners, and to nobody else', async () => {
    const bob = await add('member');
    const signIns = async (): Promise<void> => {
      const visitor = { clientIp: '192.0.2.1', userAgent: 'test', sessionToken: undefined };
      const begin = { userId: bob.userId, visitor, isStrong: false, method: 'password' } as const;
      const { users } = api.world.rooms;
      const { id } = await api.world.db.tx('test.sign_in', (tx) => users.sessions.begin(tx, begin));
      await users.sessions.end(bob.userId, id);
    };
    const both = ['session.created', 'session.ended'];
    const readers: [Person | ApiAccount, string[]][] = [
      [owner, both],
      [account, both],
      [bob, both],
      [await add('member'), []],
      [await add('read-only'), []],
      [await add('billing'), []],
      [{ ...account, ...(await keyWith(['events:read', 'members:read', 'api_keys:read'])) }, []],
    ];
    for (const [who, expected] of readers) expect(typesOf(await seenBy(who, signIns))).toEqual(expected);
    const [event] = await seenBy(owner, signIns);
    expect(event).toMatchObject({ resource_type: 'session', resource_id: bob.userId, resource: null });
    expect(JSON.stringify(event)).not.toContain('192.0.2.1');
  });

  test('shows keys and members only to those who may list them, and nothing of other organisations', async () => {
    const other = await api.account();
    const issue = () => keyWith(['instances:read']);
    expect(typesOf(await seenBy(await add('billing'), issue))).toEqual([]);
    expect(typesOf(await seenBy(await add('read-only'), issue))).toEqual(['api_key.created']);
    expect(typesOf(await seenBy(other, issue))).toEqual([]);
    const stranger = await add('owner', other.orgId);
    expect(typesOf(await seenBy(stranger, () => add('member')))).toEqual([]);
  });

  test.each([
    ['is removed', (bob: Person) => api.call('DELETE', `/v1/members/${bob.userId}`, { as: owner })],
    [
      'gets a role that may do less',
      (bob: Person) => api.call('PATCH', `/v1/members/${bob.userId}`, { as: owner, body: { role: 'billing' } }),
    ],
    ['signs out', (bob: Person) => api.call('POST', '/v1/auth/sign-out', { as: bob })],
  ])('of a person who %s ends with the next check', async (_what, happens) => {
    const bob = await add('member');
    const stream = await openCall(api, bob);
    let ended = false;
    stream.on('close', () => (ended = true)).resume();
    await api.world.rooms.live.tick();
    await api.world.clock.advance(15_000);
    expect(ended).toBe(false);
    await happens(bob);
    await api.world.clock.advance(15_000);
    await expect.poll(() => ended).toBe(true);
  });
});

async function keyWith(scopes: string[]): Promise<{ key: string }> {
  return api.world.rooms.accounts.createKey({ orgId: account.orgId, name: 'x', scopes, expiresMs: null });
}

describe('the journal', () => {
  const ORGS = 100;
  const EVENTS = 20_000;

  /** Events of many organisations, one in four with a family that the caller sees, so that reading the others would be the wrong plan. */
  async function fill(db: Db): Promise<void> {
    const numbers = sql`with recursive n(i) as (select 1 union all select i + 1 from n where i < ${raw(String(EVENTS))})`;
    await db.tx('test.fill', async (tx) => {
      await tx.run(sql`${numbers} insert into events (id, type, family, subject_id, org_id, data, created_ms)
        select 'evt_fill' || i, 'instance.placed', case when i / ${raw(String(ORGS))} % 4 = 0 then 'instance' else 'model' end,
          'i-' || i, 'org-' || (i % ${raw(String(ORGS))}), '{}', i from n`);
    });
    await db.tx('test.analyze', (tx) => tx.run(sql`analyze events`));
  }

  test('is read by an index for one organisation, and for what is new of all, on SQLite and PostgreSQL', async () => {
    const { db } = api.world;
    await fill(db);
    const { db: recorded, sent } = recordingDb(db);
    const events = openEvents({ ...api.world.core, onAppend: async () => undefined });
    const sight = { families: ['instance', 'api_key'], ownFamilies: ['session'], userId: 'usr_x' };
    const cursor = { createdMs: 10_000, id: 'evt_fill10000' };
    const first = await events.ofOrg(recorded.read, 'org-1', sight, { count: 20 });
    await events.ofOrg(recorded.read, 'org-1', sight, { count: 20, from: cursor });
    const later = await events.ofOrgSince(recorded.read, 'org-1', { fromMs: 10_000, limit: 1_001 });
    expect([first.length, later.length]).toEqual([20, 100]);
    expect(sent).toHaveLength(3);
    for (const page of sent.slice(0, 2)) {
      const plan = await planOf(db, page);
      expect(plan).toMatch(/events_by_family/);
      expect(plan).toMatch(/events_by_subject/);
      // The index of all events of the organisation leads through those that the caller does not see.
      expect(plan).not.toMatch(/events_by_org/);
    }
    for (const statement of sent.slice(2)) expect(await planOf(db, statement)).toMatch(/events_by_org/);
    sent.length = 0;
    // Eleven of these, the key of the account and the session of its owner.
    expect(await events.newestSince(recorded.read, { fromMs: 19_990, limit: 20 })).toHaveLength(13);
    for (const statement of sent) expect(await planOf(db, statement)).toMatch(/events_by_time/);
  });

  const ALL = ['instance', 'session', 'member'];
  test.each([
    { families: ALL, ownFamilies: [], userId: undefined },
    { families: ['member'], ownFamilies: ['session'], userId: 'usr_x' },
    { families: [], ownFamilies: ['session', 'member'], userId: 'usr_x' },
    { families: [], ownFamilies: [], userId: undefined },
  ])('shows what is in sight, newest first, on pages of any size: %j', async (sight) => {
    const { db, rooms } = api.world;
    const types = ['instance.placed', 'session.created', 'member.added', 'org.resumed'] as const;
    for (let n = 0; n < 24; n += 1) {
      const event = { type: types[n % 4] ?? 'org.resumed', subjectId: n % 5 === 0 ? 'usr_y' : 'usr_x', data: {} };
      await db.tx('test.events', async (tx) => {
        await rooms.events.append(tx, { ...event, orgId: 'org-1' });
        await rooms.events.append(tx, { ...event, orgId: 'org-2' });
      });
      // Several have the same time.
      if (n % 3 === 0) await api.world.clock.advance(1);
    }
    const all = await rooms.events.ofOrgSince(db.read, 'org-1', { fromMs: 0, limit: 100 });
    const wanted = all.toReversed().filter((row) => isInSight(sight, row));
    const at = ({ created_ms: createdMs, id }: EventRow) => ({ createdMs, id });
    for (const count of [1, 2, 7, 100]) {
      const seen: EventRow[] = [];
      for (let more = true; more;) {
        const last = seen.at(-1);
        const from = last === undefined ? undefined : at(last);
        const rows = await rooms.events.ofOrg(db.read, 'org-1', sight, { from, count });
        expect(rows.length).toBeLessThanOrEqual(count);
        seen.push(...rows);
        more = rows.length > 0;
      }
      expect(seen).toEqual(wanted);
    }
  });
});
