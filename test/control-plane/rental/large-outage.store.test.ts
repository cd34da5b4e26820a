// Many instances fail together: verdicts are held, no credit is lost by that, and nobody else's probes suffer.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { raw, sql } from '../../../control-plane/base/db/db.ts';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { QUIET_AFTER_START_MS } from '../../../control-plane/rental/instances/quiet.ts';
import type { ProbeResult } from '../../../control-plane/rental/instances/steps.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { findProbe } from '../../../control-plane/rental/outages/store.ts';
import { watchFor } from '../../kit/watching.ts';
import { openWorld, type World } from '../../kit/world.ts';

/** More than there are workers for probes. */
const FAILING_ROWS = 60;
const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const watch = (ms: number): Promise<void> => watchFor(world, ms);
const instance = (id: string) => findInstance(world.db.read, id);

describe('an outage that many machines had together, and that ends within ten minutes', () => {
  const CENT_A_SECOND_UCENTS = 1_000_000n;
  const FUNDS_UCENTS = 1_000_000_000_000n;
  let ids: string[];
  let who: Awaited<ReturnType<World['customer']>>;
  beforeEach(async () => {
    who = await world.customer(1_000_000);
    ids = [];
    for (let i = 0; i < 6; i += 1) {
      await world.machine({ dollars: 36 });
      ids.push(await world.run(who));
    }
    await watch(QUIET_AFTER_START_MS);
  });
  const setAll = (answer: typeof DEAD | undefined): void => {
    for (const id of ids) {
      if (answer === undefined) world.probeAnswers.delete(id);
      else world.probeAnswers.set(id, answer);
    }
  };
  const chargedSeconds = async (): Promise<number> => {
    for (const id of ids) await world.remove(who, id);
    const { postedUcents } = await world.rooms.ledger.balance(world.db.read, wallet(who.orgId));
    return Number((FUNDS_UCENTS - postedUcents) / CENT_A_SECOND_UCENTS / BigInt(ids.length));
  };

  test('is made good: no customer pays for it, and the event of the recovery is sent', async () => {
    const startedMs = (await instance(ids[0] ?? ''))?.ready_ms ?? 0;
    const diedMs = world.clock.now();
    setAll(DEAD);
    await watch(9 * 60_000);
    const [id = ''] = ids;
    expect(await instance(id)).toMatchObject({ status: 'running' });
    setAll(undefined);
    const backMs = world.clock.now();
    await watch(60_000);
    expect(await instance(id)).toMatchObject({ status: 'running', unreachable_since_ms: null });
    expect((await world.journal(id)).slice(-2)).toEqual(['instance.unreachable', 'instance.recovered']);
    const aliveMs = diedMs - startedMs + (world.clock.now() - backMs);
    const seconds = await chargedSeconds();
    expect(Math.abs(seconds - aliveMs / 1000)).toBeLessThan(45);
    expect((await findProbe(world.db.read, id))?.held ?? false).toBe(false);
  });

  test('is not charged to the customer who ends its rental while the link is back and the holder is not', async () => {
    const startedMs = (await instance(ids[0] ?? ''))?.ready_ms ?? 0;
    const diedMs = world.clock.now();
    setAll(DEAD);
    await watch(9 * 60_000);
    world.probeAnswers.set(ids[1] ?? '', { ok: true });
    await watch(1_000);
    expect(await chargedSeconds()).toBeLessThanOrEqual((diedMs - startedMs) / 1000);
  });
});

test('an outage of many instances, whose probes all hang, delays no probe of another rental', async () => {
  await world.close();
  let [isOut, rival] = [false, ''];
  const released = Promise.withResolvers<void>();
  const rivalProbed = Promise.withResolvers<void>();
  const probe = async (id: string): Promise<ProbeResult> => {
    if (id === rival) rivalProbed.resolve();
    else if (isOut) await released.promise;
    return id === rival || !isOut ? { ok: true } : DEAD;
  };
  world = await openWorld(1, { probe });
  await world.machine();
  const id = await world.run(await world.customer(1_000_000));
  const { machineId } = await world.machine();
  rival = await world.run(await world.customer(10_000));
  await watch(QUIET_AFTER_START_MS);
  await world.db.tx('test.fill', async (tx) => {
    await tx.run(sql`insert into probes (instance_id, machine_id, next_ms, first_failure_ms, failures, life_ms, last_leg, last_detail)
      with recursive n(i) as (select 1 union all select i + 1 from n where i < ${FAILING_ROWS})
      select 'lost-' || i, machine_id, 1, 1, 3, 1, 'banner', 'x' from n, instances where id = ${id}`);
    const same = raw(
      'org_id, api_key_id, request, launch, gpu_type, gpu_count, tier, region, price_ucents_per_hour, machine_id, supplier_id, workload_id, tried_machine_ids, create_operation_id, created_ms, entered_ms',
    );
    await tx.run(sql`insert into instances (id, status, unreachable_since_ms, ${same})
      select lost.instance_id, 'unreachable', cast(${world.clock.now()} as bigint), ${same}
      from (select instance_id from probes where instance_id like 'lost-%') as lost cross join instances where instances.id = ${id}`);
  });
  isOut = true;
  world.rooms.watch.onLife(machineId);
  const ran = world.rooms.watch.run(new AbortController().signal);
  await rivalProbed.promise;
  released.resolve();
  await ran;
  await world.db.tx('test.empty', (tx) => tx.run(sql`delete from instances where id like 'lost-%'`));
});

describe('no outage is confirmed', () => {
  test('while the control plane has just started', async () => {
    await world.machine();
    const who = await world.customer(10_000);
    const id = await world.run(who);
    world.probeAnswers.set(id, DEAD);
    await watch(QUIET_AFTER_START_MS - 1000);
    expect(await instance(id)).toMatchObject({ status: 'running' });
    await watch(20_000);
    expect(await instance(id)).toMatchObject({ status: 'unreachable' });
  });

  test.each([1, 2, 3, 4, 5])(
    'for ten minutes when many machines fail at once (seed %d); the credit still runs from the first failure',
    async (seed) => {
      await world.close();
      world = await openWorld(seed);
      const who = await world.customer(1_000_000);
      const ids: string[] = [];
      for (let i = 0; i < 6; i += 1) {
        await world.machine();
        ids.push(await world.run(who));
      }
      await watch(QUIET_AFTER_START_MS);
      const failedMs = world.clock.now();
      for (const id of ids) world.probeAnswers.set(id, DEAD);
      await watch(9 * 60_000);
      for (const id of ids) expect((await instance(id))?.status).toBe('running');
      await watch(3 * 60_000);
      const first = await instance(ids[0] ?? '');
      expect(first?.status).toBe('unreachable');
      expect((first?.unreachable_since_ms ?? 0) - failedMs).toBeLessThan(60_000);
    },
  );
});
