// Launches on PostgreSQL while another transaction works on the cheapest machine.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { int } from '../../../control-plane/base/db/columns.ts';
import { type Db, sql, type Tx } from '../../../control-plane/base/db/db.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { openWorldOver, type World, type WorldAccount } from '../../kit/world.ts';
import { textOf } from '../../kit/sql-text.ts';

interface Noting {
  db: Db;
  launches: string[][];
  /** If it is set, a launch that has read its candidates calls it before it locks one of them. */
  pause: { atLock?: (() => Promise<void>) | undefined };
}

/** Notes the machines that each transaction of a launch locks. */
function notingLocks(db: Db): Noting {
  const launches: string[][] = [];
  const pause: Noting['pause'] = {};
  const tx: Db['tx'] = (name, body) =>
    db.tx(name, (inner) => {
      const machines: string[] = [];
      // Statements after the pause depend on those before.
      let paused: Promise<void> | undefined;
      const inOrder = <T>(send: () => Promise<T>): Promise<T> => (paused === undefined ? send() : paused.then(send));
      if (name === 'instances.create') launches.push(machines);
      return body({
        ...inner,
        lock: (root, ...ids) => {
          if (root === 'machine') machines.push(...ids);
          return inner.lock(root, ...ids);
        },
        all: (row, statement) => {
          if (textOf(statement).includes('skip locked) as one')) paused = pause.atLock?.();
          return inOrder(() => inner.all(row, statement));
        },
        one: (row, statement) => inOrder(() => inner.one(row, statement)),
        run: (statement) => inOrder(() => inner.run(statement)),
      });
    });
  return { db: { ...db, tx }, launches, pause };
}

const Waiting = z.object({ count: int });

let world: World;
let noting: ReturnType<typeof notingLocks>;
let who: WorldAccount;
let cheapest: string;
let supplier: string;
beforeEach(async () => {
  ({ world, over: noting } = await openWorldOver(notingLocks));
  who = await world.customer(100_000);
  ({ machineId: cheapest, orgId: supplier } = await world.machine({ gpus: 2, dollars: 2 }));
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

/** Another transaction holds the machine until the returned function is called. */
async function keepBusy(
  machineId: string,
  atEnd: (tx: Tx) => Promise<unknown> = async () => undefined,
): Promise<() => Promise<void>> {
  const [begun, end] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const work = world.db.tx('busy', async (tx) => {
    await tx.lock('machine', machineId);
    // The answer to the lock comes with that of the next statement.
    await tx.one(Waiting, sql`select 0 as count`);
    begun.resolve();
    await end.promise;
    await atEnd(tx);
  });
  await begun.promise;
  return () => (end.resolve(), work);
}

async function takeAll(tx: Tx, machineId: string, heldBy: string): Promise<void> {
  const want = {
    machineIds: [machineId],
    gpuType: 'H100_SXM',
    count: 2,
    heldBy,
    reservedBy: null,
    endsMs: null,
    diskGb: 0,
  };
  if ((await world.rooms.supply.hold(tx, want)) === undefined) throw new Error('the GPUs were taken');
}

/** Resolves once a transaction waits for a lock. */
async function waitForLock(): Promise<void> {
  const waiting = sql`select count(*) as count from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
  while (((await world.db.read.one(Waiting, waiting))?.count ?? 0) === 0);
}

const machineOf = async (id: string): Promise<string | null | undefined> =>
  (await findInstance(world.db.read, id))?.machine_id;

test('a launch takes a free machine of the same price instead of waiting', async () => {
  const same = (await world.machine({ gpus: 2, dollars: 2 })).machineId;
  const letGo = await keepBusy(cheapest);
  expect(await machineOf(await world.launch(who))).toBe(same);
  await letGo();
});

test('a launch waits for the cheapest machine if the others cost more', async () => {
  await world.machine({ gpus: 2, dollars: 2.01 });
  const letGo = await keepBusy(cheapest);
  const launched = world.launch(who);
  const first = await Promise.race([launched.then(() => 'launched'), waitForLock().then(() => 'waits')]);
  await letGo();
  expect(first).toBe('waits');
  expect(await machineOf(await launched)).toBe(cheapest);
});

test('a launch finds another machine of the same price if the first has become full, without a new transaction', async () => {
  const others = [await world.machine({ gpus: 2, dollars: 2 }), await world.machine({ gpus: 2, dollars: 2 })];
  const [read, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  noting.pause.atLock = () => (read.resolve(), goOn.promise);
  const launched = world.launch(who);
  await read.promise;
  noting.pause.atLock = undefined;
  await world.db.tx('test.take', async (tx) => {
    await tx.lock('machine', cheapest);
    await takeAll(tx, cheapest, 'another');
  });
  goOn.resolve();
  expect(others.map(({ machineId }) => machineId)).toContain(await machineOf(await launched));
  // One transaction, which has waited for no machine.
  expect(noting.launches).toEqual([[]]);
  await world.db.tx('test.release', (tx) => world.rooms.supply.release(tx, 'another'));
});

test('a launch is accepted, and then fails, if the only machine left the market while the launch waited for it', async () => {
  const letGo = await keepBusy(cheapest, (tx) => world.rooms.supply.delist(tx, supplier, cheapest));
  const launched = world.launch(who);
  await waitForLock();
  await letGo();
  const id = await launched;
  expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'allocating', region: 'eu-west' });
  await world.drive();
  expect((await findInstance(world.db.read, id))?.status).toBe('error');
});

test('a launch that waited for a machine in vain does not keep it from the next one', async () => {
  const other = (await world.machine({ gpus: 2, dollars: 2.01 })).machineId;
  const letGo = await keepBusy(cheapest, (tx) => takeAll(tx, cheapest, 'another'));
  const launched = world.launch(who);
  await waitForLock();
  await letGo();
  expect(await machineOf(await launched)).toBe(other);
  expect(noting.launches.map((machines) => new Set(machines))).toEqual([new Set([cheapest]), new Set([other])]);
  await world.db.tx('test.release', (tx) => world.rooms.supply.release(tx, 'another'));
});

test('launches at once that choose among two GPU types all find a place while one of the types has GPUs', async () => {
  const others = 5;
  await world.machine({ dollars: 1, gpu: { name: 'NVIDIA L40S', memory_mib: 46_068 } });
  for (let i = 0; i < others; i += 1) await world.machine({ dollars: 3 });
  const customers = await Promise.all(Array.from({ length: others + 1 }, () => world.customer(100_000)));
  const request = { gpu_type: undefined, requirements: { gpu_types: ['L40S', 'H100_SXM'] } };
  const ids = await Promise.all(customers.map((each) => world.launch(each, request)));
  const rows = await Promise.all(ids.map((id) => findInstance(world.db.read, id)));
  expect(rows.map((row) => row?.gpu_type).filter((type) => type === 'L40S')).toHaveLength(1);
  expect(rows.filter((row) => row?.machine_id === null)).toEqual([]);
});
