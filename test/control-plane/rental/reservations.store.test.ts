// Reserved capacity on a real database: contracts set GPUs aside, launches use those and no others, and an end stops nothing.
import { describe, expect, test } from 'vitest';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import {
  available,
  contract,
  DAY_MS,
  H100,
  iso,
  launch,
  openReservedWorldForEachTest,
  refusal,
  run,
  seen,
  totals,
  who,
  world,
} from './reserved-world.ts';
import { linkHost, loseHost } from '../../kit/machines.ts';

openReservedWorldForEachTest();

const statusOf = async (id: string): Promise<string> => (await world.rooms.reservations.show(id)).contract.status;

describe('a contract', () => {
  // Specification 2.7: reservation_id is a ULID.
  test('that begins within the lead time sets its GPUs aside at once, on as few machines as possible', async () => {
    await world.machine({ gpus: 4 });
    await world.machine({ gpus: 8 });
    const id = await contract(9, { starts_at: iso(DAY_MS) });
    expect(id).toMatch(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/);
    const { slots, contract: made } = await world.rooms.reservations.show(id);
    expect(made.status).toBe('pending');
    expect(slots.map((machine) => machine.slots).toSorted((a, b) => a - b)).toEqual([1, 8]);
    expect(await available()).toEqual([0, 3]);
  });

  test('that asks for too many GPUs is refused with the number that exists, and nothing is set aside', async () => {
    await world.machine({ gpus: 4 });
    await world.machine({ gpus: 2, region: 'us-east' });
    const tooMuch = [
      { ...H100, gpu_count: 3 },
      { gpu_type: 'H100_SXM', gpu_count: 3, region: 'us-east' },
    ];
    await expect(contract(0, { commitment: tooMuch })).rejects.toMatchObject(
      refusal('conflict', /^3 H100_SXM in us-east are needed\. There are 2, .* up to 0 of them/),
    );
    expect(await available()).toEqual([2, 4]);
    expect(await world.rooms.reservations.list({ count: 1_000 })).toEqual([]);
  });

  test('takes no GPU that is in use, and awaits it', async () => {
    await world.machine({ gpus: 2 });
    const other = await world.customer(10_000);
    await world.launch(other);
    const view = await world.rooms.reservations.show(await contract(2));
    expect([totals(view), view.awaited]).toEqual([{ slots: 1, inUse: 0, free: 1 }, 1]);
  });

  test('lasts a day at least, and ends in the future', async () => {
    await world.machine();
    const short = { starts_at: iso(DAY_MS), ends_at: iso(2 * DAY_MS - 1) };
    await expect(contract(1, short)).rejects.toMatchObject(refusal('validation_failed', /a day after starts_at/));
    const past = { starts_at: iso(-DAY_MS), ends_at: iso(0) };
    await expect(contract(1, past)).rejects.toMatchObject(refusal('validation_failed', /in the future/));
    await contract(1, { starts_at: iso(-DAY_MS), ends_at: iso(1) });
  });

  // Specification 2.7: status is expired.
  // Specification 3.4: Reservation status: pending, active, expired.
  test('begins and ends by itself, and its end puts the GPUs on offer again', async () => {
    await world.machine({ gpus: 2 });
    const id = await contract(2, { starts_at: iso(DAY_MS), ends_at: iso(3 * DAY_MS) });
    await world.clock.advance(DAY_MS - 1);
    await world.drive();
    expect(await statusOf(id)).toBe('pending');
    await world.clock.advance(1);
    await world.drive();
    expect(await statusOf(id)).toBe('active');
    await world.clock.advance(2 * DAY_MS - 1);
    await world.drive();
    expect([await statusOf(id), await available()]).toEqual(['active', [0]]);
    await world.clock.advance(1);
    await world.drive();
    expect([await statusOf(id), await available()]).toEqual(['expired', [2]]);
    expect(await world.journal(id)).toEqual(['reservation.pending', 'reservation.active', 'reservation.expired']);
  });

  // Specification 2.7: starts_at and ends_at are those of the running term after a renewal.
  test('with auto_renew goes on with a term of the same length and keeps its slots', async () => {
    await world.machine();
    const id = await contract(1, { renewal: 'auto_renew' });
    await world.clock.advance(65 * DAY_MS);
    // Before the engine gets to it, nobody is refused and everybody sees the new term.
    expect(await seen()).toMatchObject({ status: 'active', ends_at: iso(25 * DAY_MS) });
    await launch();
    await world.drive();
    expect(await seen()).toMatchObject({ status: 'active', starts_at: iso(-5 * DAY_MS), ends_at: iso(25 * DAY_MS) });
    expect((await world.journal(id)).filter((type) => type === 'reservation.extended')).toHaveLength(2);
  });

  // Specification 2.7: status is suspended.
  // Specification 3.4: Reservation status: suspended.
  test('is suspended and resumed, before its term too, and keeps its slots meanwhile', async () => {
    await world.machine();
    const id = await contract(1, { starts_at: iso(DAY_MS) });
    const { reservations } = world.rooms;
    expect((await reservations.suspend(id)).contract.status).toBe('suspended');
    await expect(reservations.suspend(id)).rejects.toMatchObject(refusal('conflict', /is suspended already/));
    expect((await reservations.resume(id)).contract.status).toBe('pending');
    await reservations.suspend(id);
    await world.clock.advance(2 * DAY_MS);
    await world.drive();
    expect([await statusOf(id), await available()]).toEqual(['suspended', [0]]);
    expect((await reservations.resume(id)).contract.status).toBe('active');
    await expect(reservations.resume(id)).rejects.toMatchObject(refusal('conflict', /is active, not suspended/));
  });

  // Specification 3.4: Reservation status: cancelled.
  test('is cancelled for good', async () => {
    await world.machine();
    const id = await contract(1);
    const { reservations } = world.rooms;
    expect((await reservations.cancel(id)).contract.status).toBe('cancelled');
    expect(await available()).toEqual([1]);
    for (const verb of ['suspend', 'resume', 'cancel', 'reassign'] as const) {
      await expect(reservations[verb](id)).rejects.toMatchObject({ code: 'conflict' });
    }
    await expect(reservations.extend(id, world.clock.now() + 90 * DAY_MS)).rejects.toMatchObject({ code: 'conflict' });
    await expect(reservations.show('01NOBODY')).rejects.toMatchObject({ code: 'not_found' });
  });

  test('is extended to a later end, never to an earlier one', async () => {
    await world.machine();
    const id = await contract(1);
    const endsMs = world.clock.now() + 30 * DAY_MS;
    const { reservations } = world.rooms;
    await expect(reservations.extend(id, endsMs)).rejects.toMatchObject(refusal('validation_failed', /must be later/));
    expect((await reservations.extend(id, endsMs + 1)).contract.ends_ms).toBe(endsMs + 1);
    await world.clock.advance(30 * DAY_MS);
    await world.drive();
    expect(await statusOf(id)).toBe('active');
  });

  test('gets other GPUs for unused slots on a machine that has left, all of them or none', async () => {
    const gone = await world.machine({ gpus: 4 });
    const id = await contract(4);
    const running = await run();
    await loseHost(world, gone.machineId);
    await expect(launch()).rejects.toMatchObject(
      refusal('reservation/no_capacity', /1 of 4 slots of H100_SXM are in use, 3 are on hosts that are not available/),
    );
    await world.machine({ gpus: 2 });
    await expect(world.rooms.reservations.reassign(id)).rejects.toMatchObject(refusal('conflict', /2 are free/));
    await world.machine({ gpus: 1 });
    expect(totals(await world.rooms.reservations.reassign(id))).toEqual({ slots: 4, inUse: 1, free: 3 });
    expect(totals(await world.rooms.reservations.reassign(id))).toEqual({ slots: 4, inUse: 1, free: 3 });
    await launch({ gpu_count: 2 });
    await linkHost(world, gone.machineId);
    expect(await available()).toEqual([0, 0, 3]);
    await world.end(who, running);
    expect(totals(await world.rooms.reservations.show(id))).toEqual({ slots: 4, inUse: 2, free: 2 });
  });
});

test('utilization counts slots: a slot that is taken again while an instance stops counts once', async () => {
  await world.machine({ gpus: 2 });
  const id = await contract(2);
  const first = await run({ gpu_count: 2 });
  await world.remove(who, first);
  await world.observe(first, { phase: 'stopped' });
  // They are listed in the order of their creation.
  await world.clock.advance(1);
  const second = await launch({ gpu_count: 2 });
  const full = {
    utilization: { allocated_gpus: 2, committed_gpus: 2, pct: 1 },
    instances: [
      { instance_id: first, status: 'stopping' },
      { instance_id: second, status: 'allocating' },
    ],
  };
  expect(await seen()).toMatchObject(full);
  await world.rooms.reservations.cancel(id);
  expect(await seen()).toMatchObject(full);
});

describe('an instance that runs when its contract ends', () => {
  // Specification 2.7: What outlives its contract is still shown and counted.
  test.each(['expires', 'is cancelled'])(
    'goes on, and its GPUs become free when it releases them: the contract %s',
    async (how) => {
      await world.machine({ gpus: 3 });
      const id = await contract(3);
      const instanceId = await run({ gpu_count: 2 });
      if (how === 'expires') {
        await world.clock.advance(30 * DAY_MS);
        await world.drive();
      } else await world.rooms.reservations.cancel(id);
      expect(await findInstance(world.db.read, instanceId)).toMatchObject({ status: 'running', reservation_id: id });
      expect(await available()).toEqual([1]);
      expect(await seen()).toMatchObject({
        utilization: { allocated_gpus: 2 },
        instances: [{ instance_id: instanceId }],
      });
      await world.end(who, instanceId);
      expect(await available()).toEqual([3]);
      expect(await seen()).toMatchObject({ utilization: { allocated_gpus: 0 }, instances: [] });
    },
  );
});
