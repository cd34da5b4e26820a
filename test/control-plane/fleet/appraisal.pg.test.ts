// Machines on PostgreSQL that are judged because of another machine, while their own hosts report.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { findMachine, gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { inventoryOf, type MadeMachine } from '../../kit/machines.ts';
import { type Interleaved, interleave } from '../../kit/interleave.ts';
import { openWorldOver, type World } from '../../kit/world.ts';

const SEEDS = process.env['SOAK'] === '1' ? Array.from({ length: 60 }, (_, i) => i + 1) : [1, 2, 3, 4, 5, 6];

let world: World;
let interleaved: Interleaved;
let owner: MadeMachine;
let other: MadeMachine;
beforeEach(async () => {
  ({ world, over: interleaved } = await openWorldOver(interleave));
  owner = await world.machine({ gpus: 1 });
  other = await world.machine({ gpus: 1 });
  await world.rooms.supply.reportInventory(other.machineId, both());
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const both = () => ({ ...other.inventory, gpus: [...other.inventory.gpus, ...owner.inventory.gpus] });
const uuidsOf = async (): Promise<string[]> =>
  (await gpusOf(world.db.read, other.machineId)).map((gpu) => gpu.gpu_uuid).toSorted();

describe.each(SEEDS)('in the order of seed %d', (seed) => {
  test('a machine has the GPUs that its host has reported last, whichever machine gives up its claim', async () => {
    const last = { ...other.inventory, gpus: inventoryOf(1, () => `new-${seed}`).gpus };
    const results = await interleaved.run(seed, [
      () => world.rooms.supply.suspend(owner.machineId),
      () => world.rooms.supply.reportInventory(other.machineId, last),
    ]);
    for (const result of results) if (result.status === 'rejected') throw result.reason;
    expect((await findMachine(world.db.read, other.machineId))?.inventory?.gpus).toEqual(last.gpus);
    expect(await uuidsOf()).toEqual(last.gpus.map(({ uuid }) => uuid));
  });

  test("two machines that take each other's GPUs at once are both judged", async () => {
    const swapped = { ...owner.inventory, gpus: [...owner.inventory.gpus, ...other.inventory.gpus] };
    await world.rooms.supply.reportInventory(owner.machineId, swapped);
    const results = await interleaved.run(seed, [
      () => world.rooms.supply.suspend(owner.machineId),
      () => world.rooms.supply.suspend(other.machineId),
    ]);
    for (const result of results) if (result.status === 'rejected') throw result.reason;
    for (const { machineId } of [owner, other]) {
      expect((await gpusOf(world.db.read, machineId)).map((gpu) => gpu.usable)).toEqual([true, true]);
    }
  });
});
