// The wallet of the platform: it covers what launches of replicas hold, however long that is.
import { expect, test } from 'vitest';
import { brought } from '../../../control-plane/brings.ts';
import { PLATFORM_ORG } from '../../../control-plane/base/accounts/accounts.ts';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { api } from '../../contract/api-of-test.ts';
import { chat, live, loop, openReplicasForEachTest, POOL, startAll, tick, trusted, waiting } from './replica-world.ts';

const LAUNCH_HOLD_MINUTES = 240;
openReplicasForEachTest(() => ({}), { launchHoldMinutes: LAUNCH_HOLD_MINUTES });

test('replicas start and go on, also if a launch holds four hours of its price', async () => {
  await trusted(4);
  await trusted(4);
  const answer = chat();
  await waiting(1);
  expect(await startAll()).toMatchObject([{ state: 'ready' }]);
  expect((await answer).status).toBe(200);
  await api.world.rooms.replicas.operator.scale(POOL, { min: 2, max: 2 });
  const metering = brought(api.world.brings(), 'loops').find(({ name }) => name === 'metering');
  for (let minute = 0; minute < 6 * 60; minute += 1) {
    await api.world.clock.advance(60_000);
    await metering?.run(new AbortController().signal);
    await loop('replica-funds');
    if (minute > 2) continue;
    await tick();
    await startAll();
  }
  expect(await live()).toMatchObject([{ state: 'ready' }, { state: 'ready' }]);
  const { heldUcents } = await api.world.rooms.ledger.balance(api.world.db.read, wallet(PLATFORM_ORG));
  expect(Number(heldUcents) / 1e8).toBeGreaterThanOrEqual((2 * 4 * LAUNCH_HOLD_MINUTES) / 60);
});
