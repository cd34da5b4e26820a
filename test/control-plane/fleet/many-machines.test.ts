// Registering and enrolling a machine reads no table as a whole, so it costs the same whatever a supplier and the fleet already have. To suspend
// a supplier takes few statements for all its machines.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { countRow } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { findMachine } from '../../../control-plane/fleet/supply/store.ts';
import { inventoryOf, linkHost } from '../../kit/machines.ts';
import { type RecordingDb, recordingDb, planSteps } from '../../kit/recording-db.ts';
import { textOf } from '../../kit/sql-text.ts';
import { openWorldOver, type World } from '../../kit/world.ts';

let world: World;
let recording: RecordingDb;
beforeEach(async () => {
  ({ world, over: recording } = await openWorldOver(recordingDb));
});
afterEach(() => world.close());

const DECLARED = {
  gpuCount: null,
  gpuType: null,
  vramPerGpuGb: null,
  region: 'eu',
  priceUcentsPerHour: 1n,
  tier: 'on_demand',
} as const;

/** The supplier registers a machine, its host enrols and links, and the operator approves it. */
async function addMachine(orgId: string, name: string): Promise<string> {
  const { supply } = world.rooms;
  const { machine, token } = await recording.db.tx('register', (tx) => supply.registerMachine(tx, orgId, DECLARED));
  let gpu = 0;
  const inventory = inventoryOf(2, () => `${name}-${(gpu += 1)}`);
  await supply.enroll({ token, public_key: name.padEnd(43, 'k'), inventory });
  const fleet = { rooms: world.rooms, db: recording.db };
  await linkHost(fleet, machine.id);
  await supply.approve(machine.id);
  await linkHost(fleet, machine.id);
  return machine.id;
}

async function addSupplier(): Promise<string> {
  const { id } = await world.rooms.accounts.createOrg('supplier');
  await world.db.tx('supplier', (tx) => world.rooms.supply.registerSupplier(tx, id));
  return id;
}

/** An index that leads to all machines of a supplier. What it awaits is bounded (MACHINES_AWAITED_MAX), and it has one row in `suppliers`. */
const ALL_OF_SUPPLIER =
  /^SEARCH (?!suppliers )\w+ USING (COVERING )?INDEX (?!machines_awaited )\w+ \((supplier_id|org_id)=\?\)/;

test('no statement of a registration, an enrolment or a hello reads a whole table, or all machines of the supplier', async () => {
  const orgId = await addSupplier();
  recording.sent.length = 0;
  await addMachine(orgId, 'm1');
  expect(recording.sent.map(textOf).join()).toContain('machine_count = machine_count + 1');
  const steps = await planSteps(world.db, recording.sent);
  expect(steps.filter((step) => ALL_OF_SUPPLIER.test(step))).toEqual([]);
  // The few rows of a statement itself, and tables that have one row for each contract that waits for GPUs.
  const few = /^SCAN (CONSTANT ROW|claimants|\d+ CONSTANT ROWS|w\b|used\b|slot_wants)/;
  expect(steps.filter((step) => step.startsWith('SCAN ') && !few.test(step))).toEqual([]);
});

test('the thirtieth machine of a supplier takes as many statements as its second', async () => {
  const orgId = await addSupplier();
  const counts: number[] = [];
  for (let i = 1; i <= 30; i += 1) {
    recording.sent.length = 0;
    await addMachine(orgId, `m${i}`);
    counts.push(recording.sent.length);
  }
  expect(counts[29]).toBe(counts[1]);
});

test('to suspend and resume a supplier takes as many statements for thirty machines as for one', async () => {
  const { supply } = world.rooms;
  const onOffer = async (): Promise<number> =>
    (await world.db.read.one(countRow, sql`select count(*) as count from offerings where listed = 1`))?.count ?? 0;
  const orgId = await addSupplier();
  const machineId = await addMachine(orgId, 'm1');
  const { supplier_id: supplierId = '' } = (await findMachine(world.db.read, machineId)) ?? {};
  const statementsOf = async (verb: 'suspendSupplier' | 'resumeSupplier'): Promise<number> => {
    recording.sent.length = 0;
    await supply[verb](supplierId);
    return recording.sent.length;
  };
  const forOne = [await statementsOf('suspendSupplier'), await onOffer(), await statementsOf('resumeSupplier')];
  for (let i = 2; i <= 30; i += 1) await addMachine(orgId, `m${i}`);
  await supply.suspend(machineId);
  expect(await onOffer()).toBe(29);
  expect([await statementsOf('suspendSupplier'), await onOffer(), await statementsOf('resumeSupplier')]).toEqual(
    forOne,
  );
  // The machine that the operator has suspended by itself stays off the market.
  expect(await onOffer()).toBe(29);
});
