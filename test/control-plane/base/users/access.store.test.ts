// What the operator takes away from a person: the rights of an operator, and the access.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { addPerson, type Person } from '../../../kit/people.ts';
import { openWorld, type World } from '../../../kit/world.ts';

const VISITOR = { clientIp: '192.0.2.1', userAgent: 'test', sessionToken: undefined };
const PASSWORD = 'correct horse battery staple';

let world: World;
let orgId: string;
let olga: Person;
beforeEach(async () => {
  world = await openWorld();
  ({ orgId } = await world.customer(0));
  olga = await addPerson(world, { orgId, role: 'owner' }, { isOperator: true, isStrong: true });
});
afterEach(() => world.close());

const callerOf = ({ token }: Pick<Person, 'token'>) => world.rooms.users.sessions.authenticate(token);
const signIn = ({ email }: Pick<Person, 'email'>) =>
  world.rooms.users.signIn.withPassword({ email, password: PASSWORD }, VISITOR);

async function giveLink(person: Person): Promise<string> {
  const { url } = await world.rooms.users.people.reset(person.userId);
  return url.slice(url.indexOf('#') + 1);
}

test('an operator who is one no more has no session left, and signs in as everybody else', async () => {
  await world.rooms.users.people.useLink(await giveLink(olga), PASSWORD, VISITOR);
  const before = await signIn(olga);
  expect(await callerOf(before)).toMatchObject({ session: { operatorEmail: olga.email } });
  await world.rooms.users.people.change(olga.userId, 'demote');
  expect(await callerOf(before)).toBeUndefined();
  const after = await callerOf(await signIn(olga));
  expect(after).toMatchObject({ orgId, session: { mustEnrol: false } });
  expect(after?.session?.operatorEmail).toBeUndefined();
  expect(await world.journal(olga.userId)).toContain('session.ended');
});

test('a person who is blocked has no session, key of a program or link left, and cannot sign in until unblocked', async () => {
  await world.rooms.users.people.useLink(await giveLink(olga), PASSWORD, VISITOR);
  const before = await signIn(olga);
  const key = await world.rooms.accounts.createKey({ orgId, name: 'svc', scopes: ['full_access'], expiresMs: null });
  await world.db.tx('test.own', (tx) => tx.run(sql`update api_keys set user_id = ${olga.userId} where id = ${key.id}`));
  const link = await giveLink(olga);
  await world.rooms.users.people.change(olga.email, 'block');
  expect(await callerOf(before)).toBeUndefined();
  await expect(signIn(olga)).rejects.toThrow('sign_in_failed: The operator has blocked this account');
  await expect(world.rooms.users.people.useLink(link, PASSWORD, VISITOR)).rejects.toMatchObject({ code: 'not_found' });
  expect(await world.journal(key.id)).toContain('api_key.revoked');
  await world.rooms.users.people.change(olga.email, 'unblock');
  expect(await callerOf(await signIn(olga))).toMatchObject({ orgId });
});

test('an account that somebody has made with an address does not become that of an operator', async () => {
  const stranger = await addPerson(world, undefined, { isVouched: false });
  await expect(world.rooms.users.people.change(stranger.userId, 'promote')).rejects.toThrow('admin user reset');
  await world.rooms.users.people.useLink(await giveLink(stranger), PASSWORD, VISITOR);
  expect(await world.rooms.users.people.change(stranger.userId, 'promote')).toMatchObject({ is_operator: true });
});
