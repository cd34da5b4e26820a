// A host dies: the outage is confirmed by probes from outside, and the customer is credited without asking.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { brought } from '../../../control-plane/brings.ts';
import { gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { freeTimesOf } from '../../../control-plane/money/credits/store.ts';
import { payable, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { QUIET_AFTER_START_MS } from '../../../control-plane/rental/instances/quiet.ts';
import { GRACE_MS } from '../../../shared/limits.ts';
import { reliabilityOf } from '../../../control-plane/fleet/supply/reliability.ts';
import { confirmOutage } from '../../../control-plane/rental/instances/outages.ts';
import { countMachines, findProbe } from '../../../control-plane/rental/outages/store.ts';
import { TIMED_IN_MEMORY } from '../../../control-plane/rental/outages/wells.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { z } from 'zod';
import { text } from '../../../control-plane/base/db/columns.ts';
import { loseHost } from '../../kit/machines.ts';
import { watchFor } from '../../kit/watching.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
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

/** Runs the loop that says that the process is alive. */
async function beat(): Promise<void> {
  const loop = brought(world.brings(), 'loops').find(({ name }) => name === 'own-outages');
  await loop?.run(new AbortController().signal);
}

const instance = (id: string) => findInstance(world.db.read, id);
const spent = async (orgId: string, funded: bigint): Promise<bigint> =>
  funded - (await world.rooms.ledger.balance(world.db.read, wallet(orgId))).postedUcents;

describe('an outage', () => {
  // Specification 2.2: The confirmed dead window is credited back by itself.
  // Specification 3.1: A confirmed outage goes to unreachable, unreachable_since set, the dead window credited.
  test('of a silent host is confirmed after twenty seconds without life, and credited from the last proof of life', async () => {
    const { supplierId } = await world.machine({ dollars: 3.6 });
    const who = await world.customer(10_000);
    const id = await world.run(who);
    const startedMs = (await instance(id))?.ready_ms ?? 0;
    await watch(HOUR_MS / 2);
    expect((await instance(id))?.last_reachable_ms).toBeGreaterThan(startedMs);
    const diesMs = world.clock.now();
    world.probeAnswers.set(id, DEAD);
    const lastMs = world.rooms.watch.goodSinceMs() ?? 0;
    await watch(19_000 - (diesMs - lastMs));
    expect(await instance(id)).toMatchObject({ status: 'running', unreachable_since_ms: null });
    await watch(40_000);
    const dead = await instance(id);
    expect(dead?.status).toBe('unreachable');
    const sinceMs = dead?.unreachable_since_ms ?? 0;
    expect(sinceMs).toBe(lastMs);
    expect(dead?.last_reachable_ms).toBe(lastMs);
    expect(dead?.status_reason).toContain('failed SSH probes');
    const cost = (360_000_000n * BigInt(sinceMs - startedMs)) / BigInt(HOUR_MS);
    expect(await spent(who.orgId, 10_000_000_000n)).toBe(cost);
    const earned = await world.rooms.ledger.balance(world.db.read, payable(supplierId));
    expect(earned.postedUcents).toBe((cost * 8000n) / 10_000n);
  });

  test('that a host reports of one rental hastens the probe of this rental, and of no other beside it', async () => {
    await world.machine({ gpus: 2 });
    const who = await world.customer(10_000);
    const [id, beside] = [await world.run(who), await world.run(who)];
    await watch(HOUR_MS / 60);
    const { machine_id: machineId, workload_id: workloadId } = (await instance(id)) ?? {};
    const before = await findProbe(world.db.read, beside);
    const silentMs = world.clock.now();
    const silent = {
      type: 'holder',
      workload_id: workloadId ?? '',
      state: 'silent',
      detail: 'the container was killed',
    } as const;
    await world.rooms.watch.onHolder('another machine', silent);
    expect(await findProbe(world.db.read, id)).toMatchObject({ host_failed_ms: null, host_detail: null });
    await world.rooms.watch.onHolder(machineId ?? '', silent);
    await world.clock.advance(1_000);
    await world.rooms.watch.onHolder(machineId ?? '', silent);
    expect(await findProbe(world.db.read, id)).toMatchObject({
      host_failed_ms: silentMs,
      host_detail: 'the container was killed',
      next_ms: world.clock.now(),
    });
    expect((await instance(beside))?.machine_id).toBe(machineId);
    expect(await findProbe(world.db.read, beside)).toEqual(before);
  });

  test('of one machine counts as that of one, whatever it has of other instances and beside other machines', async () => {
    const who = await world.customer(10_000);
    await world.machine({ gpus: 2 });
    const [id] = [await world.run(who), await world.run(who)];
    await world.machine();
    await world.run(who);
    await watch(QUIET_AFTER_START_MS);
    expect(await countMachines(world.db.read)).toEqual({ machines: 2, failing: 0 });
    world.probeAnswers.set(id, DEAD);
    await watch(60_000);
    expect(await countMachines(world.db.read)).toEqual({ machines: 2, failing: 1 });
  });

  test('names its evidence on the time that is not charged, and on no charge', async () => {
    await world.machine({ dollars: 3.6 });
    const who = await world.customer(10_000);
    const id = await world.run(who);
    await watch(QUIET_AFTER_START_MS);
    world.probeAnswers.set(id, DEAD);
    await watch(60_000);
    const [time] = await freeTimesOf(world.db.read, id);
    expect(time?.evidence).toMatch(/^\d+ failed SSH probes since 2026-01-01T.* last: banner/);
    const charges = await world.db.read.all(
      z.object({ evidence: text.nullable() }),
      sql`select evidence from transfers where subject_id = ${id} and kind = 'rental.charge'`,
    );
    expect(charges).toEqual([{ evidence: null }]);
  });

  test.each([0, 5_000, 31_000])(
    'of a host that is lost %i ms after the rental began is credited too',
    async (ageMs) => {
      const { machineId } = await world.machine({ dollars: 3.6 });
      const who = await world.customer(10_000);
      await watch(QUIET_AFTER_START_MS);
      const id = await world.run(who);
      const readyMs = (await instance(id))?.ready_ms ?? 0;
      await watch(ageMs);
      world.probeAnswers.set(id, DEAD);
      await loseHost(world, machineId);
      await watch(60_000);
      const dead = await instance(id);
      expect(dead?.status).toBe('unreachable');
      const billedMs = (dead?.unreachable_since_ms ?? Infinity) - readyMs;
      expect(billedMs).toBeLessThanOrEqual(ageMs);
      await world.clock.advance(HOUR_MS);
      expect(await spent(who.orgId, 10_000_000_000n)).toBe((360_000_000n * BigInt(billedMs)) / BigInt(HOUR_MS));
    },
  );

  // Specification 2.2: unreachable is a degraded reading of a running instance: it recovers by itself, with the same ready_at and no second
  // instance.running.
  // Specification 6.1: instance.running is not sent again after an outage.
  test('ends by itself: running and billed again, ready_at unchanged, no second instance.running', async () => {
    const { machineId } = await world.machine({ dollars: 3.6 });
    const who = await world.customer(10_000);
    const id = await world.run(who);
    const readyMs = (await instance(id))?.ready_ms;
    await watch(QUIET_AFTER_START_MS);
    world.probeAnswers.set(id, DEAD);
    await watch(60_000);
    const billedMs = ((await instance(id))?.unreachable_since_ms ?? 0) - (readyMs ?? 0);
    world.probeAnswers.delete(id);
    await watch(12_000);
    const back = await instance(id);
    expect(back).toMatchObject({
      status: 'running',
      ready_ms: readyMs,
      unreachable_since_ms: null,
      status_reason: null,
    });
    const resumedMs = (await world.sinceMs(id, 'instance.recovered')) ?? 0;
    expect(resumedMs).toBeLessThan(back?.entered_ms ?? 0);
    await world.clock.advance(HOUR_MS);
    await world.remove(who, id);
    const total = billedMs + world.clock.now() - resumedMs;
    const cost = await spent(who.orgId, 10_000_000_000n);
    const exact = (360_000_000n * BigInt(total)) / BigInt(HOUR_MS);
    expect(exact - cost === 0n || exact - cost === 1n).toBe(true);
    const events = await world.journal(id);
    expect(events.filter((type) => type === 'instance.running')).toHaveLength(1);
    expect(events).toContain('instance.recovered');
    const known = await reliabilityOf(world.db.read, [{ id: machineId, gpus: 1 }], world.clock.now());
    expect(known.get(machineId)).toMatchObject({ launches: 1, failed_launches: 0 });
  });

  test('that is confirmed at the moment at which the balance runs out leaves the container alone', async () => {
    const { machineId } = await world.machine({ dollars: 3.6 });
    const id = await world.run(await world.customer(65));
    await world.clock.advance(HOUR_MS / 6);
    const nowMs = world.clock.now();
    const deps = {
      ...world.rooms,
      platformFeeBps: 2000,
      onRunning: async () => undefined,
      downSince: async () => undefined,
    };
    const locked = Promise.withResolvers<void>();
    const outage = world.db.tx('test.outage', async (tx) => {
      await tx.lock('instance', id);
      const rental = await findInstance(tx, id);
      locked.resolve();
      return rental !== undefined && confirmOutage(tx, rental, { sinceMs: nowMs, nowMs, evidence: 'probes' }, deps);
    });
    // On PostgreSQL it still reads that the instance runs, and waits for the other transaction.
    const stop = locked.promise.then(() => world.rooms.instances.stopUnpaid(id));
    expect(await Promise.all([stop, outage])).toEqual([undefined, true]);
    expect((await instance(id))?.status).toBe('unreachable');
    expect((await world.rooms.workloads.desired(machineId)).workloads).toMatchObject([{ desired: 'running' }]);
  });

  test('that outlasts its grace ends the instance, and the GPU stays held until the host reports the container gone', async () => {
    const { machineId } = await world.machine();
    const who = await world.customer(10_000);
    const id = await world.run(who);
    await watch(QUIET_AFTER_START_MS);
    world.probeAnswers.set(id, DEAD);
    await watch(GRACE_MS + 60_000);
    expect(await instance(id)).toMatchObject({ status: 'error' });
    expect((await gpusOf(world.db.read, machineId)).some((gpu) => gpu.held_by !== null)).toBe(true);
    const events = await world.journal(id);
    expect(events.at(-1)).toBe('instance.failed');
  });

  test('ends the instance after half an hour that has passed, also if the clock is set forward', async () => {
    const watchAndBeat = async (ms: number): Promise<void> => {
      for (let passedMs = 0; passedMs < ms; passedMs += 30_000) {
        await beat();
        await watch(30_000);
      }
    };
    await world.machine();
    const id = await world.run(await world.customer(10_000));
    await watchAndBeat(QUIET_AFTER_START_MS);
    world.probeAnswers.set(id, DEAD);
    await watchAndBeat(60_000);
    world.clock.step(GRACE_MS);
    await watchAndBeat(GRACE_MS - 120_000);
    expect(await instance(id)).toMatchObject({ status: 'unreachable' });
    await watchAndBeat(120_000);
    expect(await instance(id)).toMatchObject({ status: 'error' });
  });

  test.each([
    ['was away', () => world.restart()],
    ['stood still', async () => world],
  ])(
    'that ended while the control plane %s ends no rental: its host first has time to reconnect',
    async (_, comeBack) => {
      await world.machine();
      const id = await world.run(await world.customer(10_000));
      await watch(QUIET_AFTER_START_MS);
      world.probeAnswers.set(id, DEAD);
      await watch(60_000);
      expect(await instance(id)).toMatchObject({ status: 'unreachable' });
      await beat();
      await world.clock.advance(GRACE_MS);
      world = await comeBack();
      await watch(QUIET_AFTER_START_MS - 5_000);
      expect(await instance(id)).toMatchObject({ status: 'unreachable' });
      world.probeAnswers.delete(id);
      await watch(12_000);
      expect(await instance(id)).toMatchObject({ status: 'running' });
    },
  );

  // Specification 2.2: A rental that cannot be reached can be deleted, and nothing more is charged.
  test('can be deleted: terminated at once, nothing more is charged', async () => {
    await world.machine({ dollars: 3.6 });
    const who = await world.customer(10_000);
    const id = await world.run(who);
    await watch(QUIET_AFTER_START_MS);
    world.probeAnswers.set(id, DEAD);
    await watch(60_000);
    const before = await spent(who.orgId, 10_000_000_000n);
    await world.remove(who, id);
    expect(await instance(id)).toMatchObject({ status: 'terminated' });
    await world.clock.advance(HOUR_MS);
    expect(await spent(who.orgId, 10_000_000_000n)).toBe(before);
  });
});

describe('while all probes are good', () => {
  test('nothing is written but last_reachable_ms, which is at most ten minutes old', async () => {
    await world.machine();
    const id = await world.run(await world.customer(10_000));
    await watch(40_000);
    const before = await findProbe(world.db.read, id);
    expect(before).toMatchObject({ next_ms: TIMED_IN_MEMORY, failures: 0 });
    const values = new Set<number>();
    for (let minute = 0; minute < 45; minute += 1) {
      await watch(60_000);
      const reachedMs = (await instance(id))?.last_reachable_ms ?? 0;
      expect(world.clock.now() - reachedMs).toBeLessThanOrEqual(600_000);
      values.add(reachedMs);
    }
    expect(values.size).toBeLessThanOrEqual(8);
    expect(await findProbe(world.db.read, id)).toEqual(before);
  });

  test('probes go on if the clock of the control plane is set back', async () => {
    await world.machine();
    const id = await world.run(await world.customer(10_000));
    await watch(40_000);
    world.clock.step(-HOUR_MS);
    world.probeAnswers.set(id, DEAD);
    await watch(5_000);
    expect((await findProbe(world.db.read, id))?.failures).toBeGreaterThan(0);
    world.probeAnswers.delete(id);
    await watch(60_000);
  });

  test('probes of an instance that is out of reach go on if the clock is set back, and it recovers', async () => {
    await world.machine();
    const id = await world.run(await world.customer(10_000));
    await watch(QUIET_AFTER_START_MS);
    world.probeAnswers.set(id, DEAD);
    await watch(70_000);
    expect(await instance(id)).toMatchObject({ status: 'unreachable' });
    world.probeAnswers.delete(id);
    world.clock.step(-HOUR_MS);
    await watch(10_000);
    expect(await instance(id)).toMatchObject({ status: 'running' });
  });

  test('a process that is killed leaves a proof of life that is one probe and one beat old', async () => {
    await world.machine({ dollars: 3.6 });
    const who = await world.customer(10_000);
    const id = await world.run(who);
    for (let beats = 0; beats < 20; beats += 1) {
      await watch(10_000);
      await world.rooms.ownOutages.beat();
    }
    const provenMs = world.rooms.watch.goodSinceMs() ?? 0;
    await watch(5_000);
    expect((await instance(id))?.last_reachable_ms).toBeLessThan(provenMs - 100_000);
    world.probeAnswers.set(id, DEAD);
    world = await world.restart();
    await watch(QUIET_AFTER_START_MS + 30_000);
    expect(await instance(id)).toMatchObject({ status: 'unreachable', unreachable_since_ms: provenMs });
  });

  test('a planned stop writes the last good probe of each instance', async () => {
    await world.machine();
    const id = await world.run(await world.customer(10_000));
    await watch(100_000);
    const goodMs = world.rooms.watch.goodSinceMs() ?? 0;
    expect((await instance(id))?.last_reachable_ms).toBeLessThan(goodMs);
    for (const { close } of world.brings()) await close?.();
    expect((await instance(id))?.last_reachable_ms).toBe(goodMs);
  });
});

describe('an instance that is ended while its probes fail', () => {
  test('is charged until the first failed probe if only the verdict is missing', async () => {
    const { supplierId } = await world.machine({ dollars: 3.6 });
    const who = await world.customer(10_000);
    const id = await world.run(who);
    const startedMs = (await instance(id))?.ready_ms ?? 0;
    await watch(30_000);
    world.probeAnswers.set(id, DEAD);
    // The verdict is held: the control plane has just started.
    await watch(60_000);
    expect(await instance(id)).toMatchObject({ status: 'running' });
    await world.remove(who, id);
    const ended = await instance(id);
    expect(ended?.status_reason).toMatch(
      /^The SSH path was down: \d+ failed SSH probes since .*; last: banner: the connection was closed; .*That time is not charged\.$/,
    );
    const sinceMs = Date.parse(/since (\S+);/.exec(ended?.status_reason ?? '')?.[1] ?? '');
    expect(sinceMs).toBeGreaterThan(startedMs);
    expect(sinceMs).toBeLessThan(world.clock.now() - 20_000);
    const aliveMs = (await world.sinceMs(id, 'instance.stopping')) ?? 0;
    expect(aliveMs).toBeLessThanOrEqual(sinceMs);
    const cost = (360_000_000n * BigInt(aliveMs - startedMs)) / BigInt(HOUR_MS);
    expect(await spent(who.orgId, 10_000_000_000n)).toBe(cost);
    const earned = await world.rooms.ledger.balance(world.db.read, payable(supplierId));
    expect(earned.postedUcents).toBe((cost * 8000n) / 10_000n);
  });

  test('is charged to its end if they have not failed for twenty seconds', async () => {
    await world.machine({ dollars: 3.6 });
    const who = await world.customer(10_000);
    const id = await world.run(who);
    const startedMs = (await instance(id))?.ready_ms ?? 0;
    world.probeAnswers.set(id, DEAD);
    await watch(19_000);
    await world.remove(who, id);
    expect(await instance(id)).toMatchObject({ status: 'stopping', status_reason: null });
    const cost = (360_000_000n * BigInt(world.clock.now() - startedMs)) / BigInt(HOUR_MS);
    expect(await spent(who.orgId, 10_000_000_000n)).toBe(cost);
  });
});
