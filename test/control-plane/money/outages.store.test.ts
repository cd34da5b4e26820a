// Outages as operators see them: the uncharged times of all rentals that one cause has stopped are one outage.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Outage, OutageDetail } from '../../../shared/api/outage.ts';
import { openOperator, type Operator } from '../../kit/operator.ts';
import { runCommand } from '../../kit/operator-commands.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const NO_CREDITS = { orgCreditsUcents: 0n, supplierCreditsUcents: 0n, supplierPaymentsUcents: 0n };

let world: World;
let operator: Operator;
let who: WorldAccount;
beforeEach(async () => {
  world = await openWorld();
  operator = openOperator(world);
  who = await world.customer(1_000_000);
});
afterEach(async () => {
  await operator.http.close();
  await world.verify();
  await world.close();
});

const list = async (query = ''): Promise<Outage[]> =>
  Outage.array().parse((await operator.ask('GET', `/admin/outages?limit=10${query}`))['data']);
const show = async (id: string): Promise<OutageDetail> =>
  OutageDetail.parse(await operator.ask('GET', `/admin/outages/${id}`));

const stop = (id: string, cause: 'outage' | 'gpu_fault' = 'outage'): Promise<void> =>
  world.db.tx('test.stop', (tx) => {
    const { metering } = world.rooms;
    const stopped = cause === 'outage' ? metering.closeSegment : metering.pauseForGpuFault;
    return stopped(tx, id, world.clock.now(), `the proof of ${id}`);
  });
const goOn = (id: string): Promise<void> =>
  world.db.tx('test.go_on', (tx) => world.rooms.credits.end(tx, id, world.clock.now()));

describe('an outage', () => {
  test('has all rentals of a machine that are stopped at the same time, and what they were given', async () => {
    const { machineId } = await world.machine({ gpus: 2, dollars: 3.6 });
    await world.machine({ gpus: 1, dollars: 7 });
    const [first, second] = [await world.run(who), await world.run(who)];
    const other = await world.run(who);
    await stop(first);
    await world.clock.advance(1_000);
    await stop(second);
    await stop(other);
    const [elsewhere, outage] = await list();
    expect(elsewhere).toMatchObject({ rentals: 1, cause: 'outage' });
    expect(outage).toMatchObject({
      cause: 'outage',
      machine_id: machineId,
      rentals: 2,
      open_rentals: 2,
      until: null,
      credited: '0.00',
      evidence: `the proof of ${first}`,
    });
    await world.clock.advance(HOUR_MS - 1_000);
    await goOn(first);
    expect((await list())[1]).toMatchObject({ open_rentals: 1, until: null, credited: '3.60' });
    await goOn(second);
    expect((await list())[1]).toMatchObject({ open_rentals: 0, until: new Date(world.clock.now()).toISOString() });
    expect((await list('&open=true')).map(({ outage_id: id }) => id)).toEqual([elsewhere?.outage_id]);
    expect((await list(`&machine_id=${machineId}`)).map(({ outage_id: id }) => id)).toEqual([outage?.outage_id]);
    await goOn(other);
  });

  test('that comes again on the machine is another one, and a broken GPU is one of its own', async () => {
    await world.machine({ gpus: 2 });
    const [first, second] = [await world.run(who), await world.run(who)];
    await stop(first);
    await stop(second, 'gpu_fault');
    await goOn(first);
    expect((await list()).map(({ cause }) => cause).toSorted()).toEqual(['gpu_fault', 'outage']);
    await goOn(second);
  });

  test('of our own is one for all machines', async () => {
    await world.machine();
    await world.machine();
    await world.run(who);
    await world.run(who);
    const fromMs = world.clock.now();
    await world.clock.advance(120_000);
    const untilMs = world.clock.now();
    await world.rooms.metering.creditOwnOutage({
      fromMs,
      untilMs,
      evidence: 'we were away',
    });
    expect(await list()).toMatchObject([
      {
        cause: 'own_outage',
        machine_id: null,
        rentals: 2,
        open_rentals: 0,
        from: new Date(fromMs).toISOString(),
        evidence: 'we were away',
      },
    ]);
  });

  test('shows the rentals with what is held of each, until the operator has decided', async () => {
    await world.close();
    world = await openWorld(1, { settings: { lossBounds: NO_CREDITS } });
    operator = openOperator(world);
    who = await world.customer(1_000_000);
    await world.machine({ dollars: 3.6 });
    const id = await world.run(who);
    await stop(id);
    await world.clock.advance(HOUR_MS);
    await goOn(id);
    const [outage] = await list();
    expect(outage).toMatchObject({ credited: '0.00', held: '3.60' });
    const { affected } = await show(outage?.outage_id ?? '');
    expect(affected).toMatchObject([
      {
        instance_id: id,
        org_id: who.orgId,
        credit_dollars: '3.60',
        credit_state: 'held',
        evidence: `the proof of ${id}`,
      },
    ]);
    await operator.ask('POST', `/admin/credits/${affected[0]?.credit_id}/release`, { note: 'it was true' });
    expect((await show(outage?.outage_id ?? '')).affected).toMatchObject([{ credit_state: 'released' }]);
  });

  test('that is not known is refused', async () => {
    await expect(show('out_none')).rejects.toMatchObject({ code: 'not_found' });
  });
});

test('the commands list outages and show one', async () => {
  await world.machine();
  const id = await world.run(who);
  await stop(id);
  const [outage] = await list();
  const asked: string[] = [];
  expect(await runCommand(world, ['admin', 'outage', 'list', '--open', '--machine', 'm'], asked)).toBe('none\n');
  expect(asked).toEqual(['/admin/outages?open=true&machine_id=m']);
  const text = await runCommand(world, ['admin', 'outage', 'show', outage?.outage_id ?? '']);
  expect(text).toContain(id);
  expect(text).toMatch(/^outage\n/);
  await goOn(id);
});
