// A plan of the engine that is late: what it was made from has changed before its transaction got the locks.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { int } from '../../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../../control-plane/base/db/db.ts';
import { findInstance, type InstanceRow } from '../../../control-plane/rental/instances/store.ts';
import { GRACE_MS } from '../../../shared/limits.ts';
import { openWorldOver, type World, type WorldAccount } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;

interface Late {
  db: Db;
  /** What happens once before the next transaction of this name begins. */
  before: Map<string, () => Promise<unknown>>;
}

function late(db: Db): Late {
  const before = new Map<string, () => Promise<unknown>>();
  const tx: Db['tx'] = async (name, body) => {
    const first = before.get(name);
    before.delete(name);
    await first?.();
    return db.tx(name, body);
  };
  return { db: { ...db, tx }, before };
}

let world: World;
let over: Late;
let who: WorldAccount;
let id: string;
beforeEach(async () => {
  ({ world, over } = await openWorldOver(late));
  await world.machine();
  who = await world.customer(100_000);
  id = await world.run(who);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

async function row(): Promise<InstanceRow> {
  const found = await findInstance(world.db.read, id);
  if (found === undefined) throw new Error('the instance is gone');
  return found;
}

test('a rental that its customer ends after its runtime limit, before the engine has, is charged to the limit', async () => {
  await world.machine();
  const limited = await world.run(who, { auto_terminate_hours: 1 });
  await world.clock.advance(3 * HOUR_MS);
  await world.end(who, limited);
  const segment = await world.db.read.one(
    z.object({ ms: int }),
    sql`select cast(sum(ended_ms - started_ms) as bigint) as ms from meter_segments where subject_id = ${limited}`,
  );
  expect(segment?.ms).toBe(HOUR_MS);
});

async function note(fault: string | null): Promise<void> {
  await world.rooms.instances.noteGpus([{ heldBy: (await row()).workload_id ?? '', fault }]);
}

test('a rental whose GPU is mended in the last moment of the grace goes on', async () => {
  await note('Xid 79');
  await world.clock.advance(GRACE_MS);
  over.before.set('instances.move', () => note(null));
  await world.drive();
  expect(over.before.size).toBe(0);
  expect(await row()).toMatchObject({ status: 'running', gpu_fault: null, status_reason: null });
  await note('Xid 79');
  await world.clock.advance(GRACE_MS);
  await world.drive();
  expect((await row()).status).toBe('error');
});
