// The operator's commands for people and for the suspension of organisations, from the command line to the rows.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { runCommand } from '../../kit/operator-commands.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
let orgId: string;
beforeEach(async () => {
  world = await openWorld();
  ({ orgId } = await world.customer(1_000));
});
afterEach(() => world.close());

const run = (...words: string[]): Promise<string> => runCommand(world, ['admin', ...words]);
const runJson = async (...words: string[]): Promise<Record<string, unknown>> =>
  JSON.parse(await run(...words, '--json')) as Record<string, unknown>;

describe('people', () => {
  const add = (email: string, ...more: string[]): Promise<Record<string, unknown>> =>
    runJson('user', 'add', '--email', email, '--name', 'Ada', ...more);

  test('are added with a link, as operators or with a role, and listed', async () => {
    const operator = await add('Op@Example.com', '--operator');
    expect(operator).toMatchObject({ email: 'op@example.com', is_operator: true, has_second_factor: false, orgs: [] });
    expect(operator['url']).toMatch(/\/welcome#[\w-]{43}$/);
    const owner = await add('ada@example.com', '--org', orgId, '--role', 'owner');
    expect(owner).toMatchObject({ is_operator: false, orgs: [`${orgId} (owner)`] });
    const { data } = await runJson('user', 'list');
    expect(data).toMatchObject([{ email: 'ada@example.com' }, { email: 'op@example.com' }]);
    expect(JSON.stringify(data)).not.toContain('welcome');
    const page = await runJson('user', 'list', '--limit', '1');
    expect((await runJson('user', 'list', '--after', String(page['next_cursor'])))['data']).toMatchObject([
      { email: 'op@example.com' },
    ]);
  });

  test('need an address of their own, an organisation with each role, and a role that exists', async () => {
    await add('ada@example.com');
    await expect(add('ADA@example.com')).rejects.toThrow('Somebody has the address ada@example.com already');
    await expect(add('b@example.com', '--org', orgId)).rejects.toThrow('role must be given with org_id');
    await expect(add('b@example.com', '--org', orgId, '--role', 'king')).rejects.toThrow('role must be one of');
    await expect(add('b@example.com', '--org', 'nobody', '--role', 'owner')).rejects.toThrow('no organisation nobody');
    await expect(add('no address')).rejects.toThrow('email');
  });

  test('who have an account become members of another organisation, once and with a role that exists', async () => {
    const { id } = await add('ada@example.com', '--org', orgId, '--role', 'owner');
    const other = await world.rooms.accounts.createOrg('other');
    const join = (...more: string[]): Promise<Record<string, unknown>> =>
      runJson('org', 'add-member', other.id, '--role', 'billing', ...more);
    expect(await join('--user', 'ADA@example.com')).toMatchObject({ user_id: id, role: 'billing' });
    await expect(join('--user', String(id))).rejects.toThrow('is a member of the organisation already');
    await expect(join('--user', 'nobody@example.com')).rejects.toThrow('There is no user nobody@example.com');
    await expect(join('--user', String(id), '--role', 'king')).rejects.toThrow('role must be one of');
    await expect(run('org', 'add-member', 'nobody', '--user', String(id), '--role', 'owner')).rejects.toThrow(
      'no organisation nobody',
    );
    expect((await runJson('org', 'members', other.id))['data']).toMatchObject([{ user_id: id, role: 'billing' }]);
    expect(await world.journal(String(id))).toContain('member.added');
  });

  test('are reset by id or address', async () => {
    const { id, url } = await add('ada@example.com');
    for (const who of [String(id), 'Ada@example.com']) {
      expect((await runJson('user', 'reset', who))['url']).not.toBe(url);
    }
    await expect(run('user', 'reset', 'nobody')).rejects.toThrow('There is no user nobody');
  });

  test('become operators, lose it again, are blocked and unblocked, each with a reason', async () => {
    await add('ada@example.com');
    const change = (verb: string): Promise<Record<string, unknown>> =>
      runJson('user', verb, 'ada@example.com', '--reason', 'asked');
    expect(await change('promote')).toMatchObject({ is_operator: true });
    await expect(change('promote')).rejects.toThrow('is an operator already');
    expect(await change('demote')).toMatchObject({ is_operator: false });
    await expect(change('demote')).rejects.toThrow('is not an operator');
    expect(await change('block')).toMatchObject({ blocked_at: expect.any(String) });
    await expect(change('block')).rejects.toThrow('is blocked already');
    await expect(run('user', 'reset', 'ada@example.com')).rejects.toThrow('admin user unblock');
    expect(await change('unblock')).toMatchObject({ blocked_at: null });
    await expect(change('unblock')).rejects.toThrow('is not blocked');
    await expect(run('user', 'block', 'ada@example.com')).rejects.toThrow('--reason');
    const { data } = await runJson('audit', 'list', '--limit', '100');
    expect(JSON.stringify(data)).toContain('adminBlockUser');
  });
});

test('an organisation is suspended with a reason, and resumed', async () => {
  const suspended = await runJson('org', 'suspend', orgId, '--reason', 'unpaid');
  expect(suspended).toMatchObject({ suspended_at: expect.any(String), suspended_reason: 'unpaid' });
  expect(await world.journal(orgId)).toEqual(['org.suspended']);
  const resumed = await runJson('org', 'resume', orgId);
  expect(resumed).toMatchObject({ suspended_at: null, suspended_reason: null });
  await expect(run('org', 'suspend', 'nobody', '--reason', 'x')).rejects.toThrow('no organisation nobody');
  await expect(run('org', 'suspend', orgId)).rejects.toThrow('--reason');
});
