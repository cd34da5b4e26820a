// An instance whose balance ends is stopped, unless funds arrive before its stop is carried out.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { funding, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import { type KeyAccount, openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;

let world: World;
let who: KeyAccount;
let id: string;
beforeEach(async () => {
  world = await openWorld();
  await world.machine({ dollars: 3.6 });
  who = await world.customer(65);
  id = await world.run(who);
  await world.clock.advance(HOUR_MS / 6);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const tick = (): Promise<string[]> => world.rooms.metering.tick(new AbortController().signal);
const status = async (): Promise<string | undefined> => (await findInstance(world.db.read, id))?.status;
/** Adds funds for ten minutes. */
async function fund(): Promise<void> {
  const transfer = { id: 'more', debit: funding, credit: wallet(who.orgId), amountUcents: 60n * UCENTS_PER_CENT };
  const about = { kind: 'funding.manual', subjectId: who.orgId, effectiveMs: world.clock.now() };
  await world.db.tx('test.fund', (tx) => world.rooms.ledger.post(tx, transfer.id, [{ ...transfer, ...about }]));
}

test('an instance that the balance no longer covers is stopped', async () => {
  expect(await tick()).toEqual([id]);
  await world.rooms.instances.stopUnpaid(id);
  expect(await status()).toBe('stopping');
});

test('an instance runs on if funds arrive after the tick has found it, until they end too', async () => {
  expect(await tick()).toEqual([id]);
  await fund();
  await world.rooms.instances.stopUnpaid(id);
  expect(await status()).toBe('running');
  expect(await world.journal(id)).not.toContain('instance.stopping');
  expect(await tick()).toEqual([]);
  await world.clock.advance(HOUR_MS / 6);
  expect(await tick()).toEqual([id]);
  await world.rooms.instances.stopUnpaid(id);
  expect(await status()).toBe('stopping');
});

test('an instance whose charges are paused while it waits for its stop runs on', async () => {
  expect(await tick()).toEqual([id]);
  await world.db.tx('test.pause', async (tx) => {
    await tx.lock('org', who.orgId);
    await world.rooms.metering.pauseForGpuFault(tx, id, world.clock.now(), 'Xid 79');
  });
  await world.rooms.instances.stopUnpaid(id);
  expect(await status()).toBe('running');
});
