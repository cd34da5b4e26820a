// The commands of `svc` take a machine by the name that its supplier has given it.
import { expect, test } from 'vitest';
import { bringMachine } from '../../contract/suppliers.ts';
import { api, openSvcForEachTest, owner, svcOf } from './svc-of-test.ts';

openSvcForEachTest();

test('a machine is registered with a name, listed with it and renamed', async () => {
  await svcOf().run('machine', 'join');
  const named = ['machine', 'enroll', '--region', 'eu', '--price', '1', '--name', 'rack 7'];
  expect(await svcOf().run(...named)).toMatchObject({ code: 0, stdout: expect.stringContaining('enroll_') });
  const { stdout } = await svcOf().run('machine', 'list');
  expect(stdout).toMatch(/^MACHINE_ID +NAME +HOSTNAME +STATUS /);
  expect(stdout).toMatch(/^\S+ +rack 7 +pending_verification /m);
  const renamed = await svcOf().run('machine', 'change', 'rack 7', '--name', 'rack 8');
  expect(renamed.stdout).toMatch(/^name +rack 8$/m);
});

test('an empty name removes the name, and a change without an option names the options', async () => {
  const id = await bringMachine(api, owner, { name: 'rack 7' });
  expect((await svcOf().run('machine', 'change', 'rack 7', '--name', '', '-q')).stdout).toBe(`${id}\n`);
  expect((await svcOf().run('machine', 'get', 'rack 7')).code).toBe(3);
  expect(await svcOf().run('machine', 'change', id)).toEqual({
    code: 2,
    stdout: '',
    stderr: 'svc: give at least one of --name, --region, --price, --until\n',
  });
});

test('the last time on offer is set and shown', async () => {
  await bringMachine(api, owner, { name: 'rack 7' });
  const time = '2100-01-01T00:00:00.000Z';
  const set = await svcOf().run('machine', 'change', 'rack 7', '--until', time);
  expect(set.stdout).toMatch(new RegExp(`^rentable_until +${time}$`, 'm'));
  expect((await svcOf().run('machine', 'list')).stdout).toContain(time);
});

test('an empty time withdraws the last time on offer', async () => {
  const id = await bringMachine(api, owner);
  expect((await svcOf().run('machine', 'change', id, '--until', '', '-q')).stdout).toBe(`${id}\n`);
});

test('each command takes the name for the id, and so does the option of the earnings', async () => {
  const id = await bringMachine(api, owner, { name: 'rack 7' });
  const of = async (...argv: string[]): Promise<string> => (await svcOf().run('machine', ...argv, '-q')).stdout;
  expect(await of('get', 'rack 7')).toBe(`${id}\n`);
  expect(await of('get', id)).toBe(`${id}\n`);
  expect(await of('checks', 'rack 7')).toBe(`${id}\n`);
  expect(await of('list', '--name', 'rack 7')).toBe(`${id}\n`);
  expect(await of('list', '--name', 'rack')).toBe('');
  expect(await svcOf().run('machine', 'metrics', 'rack 7')).toMatchObject({ code: 0 });
  const { stdout } = await svcOf().run('machine', 'earnings', '--machine', 'rack 7', '--json');
  expect(JSON.parse(stdout)).toMatchObject({ of_machine: { machine_id: id } });
  expect(await of('delist', 'rack 7')).toBe(`${id}\n`);
  expect(await of('relist', 'rack 7')).toBe(`${id}\n`);
});

test('a name that no machine has is not found, and one that several have says which', async () => {
  const ids = [await bringMachine(api, owner, { name: 'twin' }), await bringMachine(api, owner, { name: 'twin' })];
  const unknown = await svcOf().run('machine', 'get', 'twi');
  expect(unknown).toMatchObject({ code: 3, stderr: expect.stringContaining('no machine has the id or name twi') });
  expect(unknown.stderr).toContain('svc machine list');
  const { code, stderr } = await svcOf().run('machine', 'delist', 'twin');
  expect([code, ids.filter((id) => stderr.includes(id))]).toEqual([1, ids]);
  expect(stderr).toContain('2 machines have the name twin');
});

test('the name of a delisted machine means the one that took its place', async () => {
  const old = await bringMachine(api, owner, { name: 'rack 7' });
  const of = async (...argv: string[]): Promise<string> => (await svcOf().run('machine', ...argv, '-q')).stdout;
  await of('delist', 'rack 7');
  expect(await of('get', 'rack 7')).toBe(`${old}\n`);
  const heir = await bringMachine(api, owner, { name: 'rack 7' });
  expect(await of('get', 'rack 7')).toBe(`${heir}\n`);
  expect(await of('delist', 'rack 7')).toBe(`${heir}\n`);
  expect((await svcOf().run('machine', 'relist', 'rack 7')).stderr).toContain('2 machines have the name rack 7');
});

test('a machine shows whether it is on offer, what the service keeps, and how reliable it is', async () => {
  const id = await bringMachine(api, owner);
  const { stdout: list } = await svcOf().run('machine', 'list');
  expect(list).toMatch(/ONLINE +ON_OFFER +/);
  const { stdout } = await svcOf().run('machine', 'get', id);
  expect(stdout).toMatch(/^on_offer +true$/m);
  expect(stdout).toMatch(/^platform_fee_percent +20$/m);
  await svcOf().run('machine', 'delist', id);
  expect((await svcOf().run('machine', 'get', id)).stdout).toMatch(/^on_offer +false$/m);
});

test('a change of the payee is cancelled, and the statement is printed as CSV', async () => {
  const { key } = owner;
  await svcOf().run('machine', 'join');
  const first = { chain: 'base', address: '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed' };
  await api.call('PUT', '/v1/community/payout-destination', { key, body: first });
  const other = '0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359';
  const changed = await svcOf().run('machine', 'pay-to', '--chain', 'base', '--address', other);
  expect(changed.stdout).toMatch(new RegExp(`^pending\\.address +${other}$`, 'm'));
  const kept = await svcOf().run('machine', 'keep-payee');
  expect(kept.stdout).toMatch(new RegExp(`^destination\\.address +${first.address}$`, 'm'));
  expect(kept.stdout).not.toContain(other);
  const csv = await svcOf().run('api', 'GET', '/community/statement?format=csv');
  expect(csv).toMatchObject({ code: 0, stdout: expect.stringMatching(/^\w+,/) });
});
