// Whose launches make this service send requests to the registry that they name: only those that could be accepted otherwise.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import type { CreateInstance } from '../../../shared/api/instance.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const IMAGE = 'images.example.com/own/app';

let world: World;
/** Requests to registries. */
let sent: number;
beforeEach(async () => {
  world = await openWorld(1, { settings: { openLaunchesPerOrg: 1 } });
  sent = 0;
  const { verify } = world.images;
  world.images.verify = async (reference, login, asking) => {
    await asking?.mayAsk?.();
    sent += 1;
    return verify(reference, login);
  };
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const launch = (who: WorldAccount, request: Partial<CreateInstance> = {}): Promise<string> =>
  world.launch(who, { image: IMAGE, ...request });

test('without money, an offer, a contract or a place under its limit, no launch makes a registry answer', async () => {
  await world.machine();
  const poor = await world.customer(0);
  await expect(launch(poor)).rejects.toMatchObject({ code: 'insufficient_balance' });
  const rich = await world.customer(100_000);
  await expect(launch(rich, { gpu_type: 'NO_SUCH' })).rejects.toMatchObject({ code: 'image_unavailable' });
  await expect(launch(rich, { offering_id: 'gone' })).rejects.toMatchObject({ code: 'offering_unavailable' });
  await expect(launch(rich, { tier: 'reserved' })).rejects.toMatchObject({ code: 'reservation/no_contract' });
  expect(sent).toBe(0);
  await launch(rich);
  expect(sent).toBe(1);
  await expect(launch(rich)).rejects.toMatchObject({ code: 'rate_limit_exceeded' });
  expect(sent).toBe(1);
});

test('nobody without money makes a registry answer while all hosts are busy', async () => {
  await world.machine();
  await launch(await world.customer(100_000));
  await expect(launch(await world.customer(0))).rejects.toMatchObject({ code: 'insufficient_balance' });
  expect(sent).toBe(1);
});

test('the checks leave nothing behind: an image that the registry does not know holds no money', async () => {
  await world.machine();
  const who = await world.customer(100_000);
  world.images.verify = async (_reference, _login, asking) => {
    await asking?.mayAsk?.();
    throw new Error('unknown image');
  };
  await expect(launch(who)).rejects.toThrow('unknown image');
  const { heldUcents } = await world.rooms.ledger.balance(world.db.read, wallet(who.orgId));
  expect(heldUcents).toBe(0n);
});
