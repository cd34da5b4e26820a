// The members of a supplier are mailed when the address to which it is paid is changed, because an API key alone can ask for that.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { HOME, nameDestination } from '../../../kit/payees.ts';
import { type Mailed, openMailed } from './mailed.ts';
import { SPAN_MS } from '../../../../control-plane/rental/notices/limits.ts';

const OTHER = '0x8617E340B3D01FA5F11F306F4090FD50E238070D';

let mailed: Mailed;
let payee: { supplierId: string; orgId: string };
beforeEach(async () => {
  mailed = await openMailed();
  payee = await mailed.world.machine();
});
afterEach(async () => {
  await mailed.world.verify();
  await mailed.world.close();
});

test('the first address, a change of it and its end are told to those who may change it', async () => {
  const { world, sent } = mailed;
  const owner = await mailed.person(payee.orgId, 'owner');
  await mailed.person(payee.orgId, 'billing');
  await nameDestination(world, payee);
  await mailed.gather();
  expect(sent).toMatchObject([{ to: owner.email, subject: 'Your payout address was changed (api.example.com)' }]);
  expect(sent[0]?.text).toContain(' UTC: 0x529...69EE7 on base is the first address, and is in force.\n');
  await world.clock.advance(SPAN_MS);
  const from = new Date(world.clock.now() + 48 * 3_600_000).toISOString().slice(0, 19).replace('T', ' ');
  await nameDestination(world, payee, { address: OTHER, chain: 'polygon' });
  await nameDestination(world, payee, { address: HOME });
  await mailed.gather();
  expect(sent).toHaveLength(2);
  expect(sent[1]?.text).toContain(
    ` UTC: 0x861...8070D on polygon replaces 0x529...69EE7 on base from ${from} UTC on.\n`,
  );
  expect(sent[1]?.text).toContain(' UTC: The change to 0x861...8070D on polygon was cancelled.\n');
  expect(sent[1]?.text).toContain('https://api.example.com/console/earnings');
});
