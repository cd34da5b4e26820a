// A hello costs few round trips, because thousands of hosts link within seconds after a restart.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { openArrival } from '../../../control-plane/fleet/link/arrival.ts';
import { openCloneTokens } from '../../../control-plane/fleet/link/clone-tokens.ts';
import { openLinkRecords } from '../../../control-plane/fleet/link/presence.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { findMachine, gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import type { HelloMessage } from '../../../shared/protocol/link.ts';
import { countingDb, type CountingDb } from '../../kit/counting-db.ts';
import { helloOf, loseHost, type MadeMachine } from '../../kit/machines.ts';
import { openWorldOver, type World } from '../../kit/world.ts';

const PUBLIC_KEY = 'k'.repeat(43);
const ROUND_TRIPS_MAX = 8;

let world: World;
let counting: CountingDb;
let made: MadeMachine;
beforeEach(async () => {
  ({ world, over: counting } = await openWorldOver(countingDb));
  made = await world.machine({ gpus: 8, publicKey: PUBLIC_KEY });
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

/** What a link does until the desired state and the first clone token are sent. */
async function sayHello(patch: Partial<HelloMessage> = {}): Promise<void> {
  const { core, rooms } = world;
  const cloneTokens = openCloneTokens(core);
  const arrive = openArrival({
    db: core.db,
    cloneTokens,
    records: openLinkRecords(core),
    supply: rooms.supply,
    meet: rooms.workloads.meet,
  });
  const machine = await findMachine(core.db.read, made.machineId);
  const hello = helloOf(made, patch);
  await arrive(made.machineId, hello, { clientIp: '192.0.2.1', publicKey: machine?.public_key ?? '' });
  await rooms.workloads.desired(made.machineId);
  await cloneTokens.next(made.machineId);
}

const costOf = async (patch: Partial<HelloMessage> = {}): Promise<Omit<CountingDb['counts'], 'statements'>> => {
  const before = { ...counting.counts };
  await sayHello(patch);
  const { roundTrips, rowWrites } = counting.counts;
  return { roundTrips: roundTrips - before.roundTrips, rowWrites: rowWrites - before.rowWrites };
};
const offered = async (): Promise<number> =>
  (await listedOfferings(world.db.read, { count: 10 })).reduce((sum, offering) => sum + offering.gpu_free, 0);

test('the hello of a host with rentals and the same inventory is eight round trips at most, and writes what has changed', async () => {
  const who = await world.customer(10_000);
  for (let i = 0; i < 2; i += 1) await world.run(who);
  await sayHello();
  await loseHost(world, made.machineId);
  expect(await offered()).toBe(0);
  const cost = await costOf();
  expect(cost.roundTrips).toBeLessThanOrEqual(ROUND_TRIPS_MAX);
  // The token, the link record, the machine, its offering, and since when it is linked.
  expect(cost.rowWrites).toBe(5);
  expect(await offered()).toBe(6);
  // Another link, before the first one was found dead: the machine is online already.
  expect((await costOf()).rowWrites).toBe(2);
});

test('a copied host comes online, and what it says about its GPUs is not taken', async () => {
  await loseHost(world, made.machineId);
  await world.rooms.supply.setCopied(made.machineId, true);
  const inventory = { ...made.inventory, gpus: made.inventory.gpus.slice(1) };
  await sayHello({ inventory });
  expect(await findMachine(world.db.read, made.machineId)).toMatchObject({ online: true, inventory: made.inventory });
  expect((await gpusOf(world.db.read, made.machineId)).filter(({ usable }) => usable)).toHaveLength(8);
});

test('GPUs that a contract needs go to it before the machine is on offer again', async () => {
  await loseHost(world, made.machineId);
  await world.db.tx('test.want', (tx) =>
    world.rooms.supply.awaitSlots(tx, {
      reserved_by: 'r-1',
      gpu_type: 'H100_SXM',
      region: 'eu-west',
      gpus_missing: 3,
      starts_ms: world.clock.now(),
      ends_ms: null,
    }),
  );
  await sayHello();
  expect((await gpusOf(world.db.read, made.machineId)).filter((gpu) => gpu.reserved_by === 'r-1')).toHaveLength(3);
  expect(await offered()).toBe(5);
});

test('a changed inventory is stored, and a GPU that it reports broken is passed on, also if a crash has cut that off before', async () => {
  const id = await world.run(await world.customer(10_000));
  const held = (await gpusOf(world.db.read, made.machineId)).find((gpu) => gpu.held_by !== null);
  const inventory = {
    ...made.inventory,
    gpu_faults: [{ uuid: held?.gpu_uuid ?? '', severity: 'broken' as const, detail: 'Xid 79' }],
  };
  await sayHello({ inventory });
  expect((await findMachine(world.db.read, made.machineId))?.inventory?.gpu_faults).toHaveLength(1);
  expect((await findInstance(world.db.read, id))?.gpu_fault).toContain('Xid 79');
  await world.db.tx('test.crash', (tx) => tx.run(sql`update instances set gpu_fault = null where id = ${id}`));
  await sayHello({ inventory });
  expect((await findInstance(world.db.read, id))?.gpu_fault).toContain('Xid 79');
});
