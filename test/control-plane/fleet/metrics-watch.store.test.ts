// For how long a host is asked to sample quickly while somebody looks at its figures, also when time does not pass evenly.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type FleetMetrics, openFleetMetrics } from '../../../control-plane/fleet/metrics/metrics.ts';
import { METRICS_WATCH_MS } from '../../../shared/limits.ts';
import { openWorld, type World } from '../../kit/world.ts';

const MACHINE = 'm-1';
const HOUR_MS = 3_600_000;

let world: World;
let metrics: FleetMetrics;
/** How long the database takes for a read. */
let readMs: number;
/** The times for which the host was asked. */
let asked: number[];
beforeEach(async () => {
  world = await openWorld();
  readMs = 0;
  asked = [];
  const { db, clock } = world;
  const all: typeof db.read.all = async (...statement) => {
    const rows = await db.read.all(...statement);
    clock.jump(readMs);
    return rows;
  };
  const link = { isUp: () => true, watch: (_id: string, forMs: number) => void asked.push(forMs) };
  metrics = openFleetMetrics({ db: { ...db, read: { ...db.read, all } }, clock, link });
});
afterEach(() => world.close());

// A host ends its link if it is sent a negative time.
test('a look that ends while the database answers asks for no negative time', async () => {
  await metrics.look(MACHINE);
  world.clock.jump(METRICS_WATCH_MS - 5);
  readMs = 10;
  await metrics.tick();
  expect(asked).toEqual([5]);
});

test('a look after the clock was set back asks again', async () => {
  await metrics.look(MACHINE);
  await metrics.tick();
  world.clock.step(-HOUR_MS);
  await metrics.look(MACHINE);
  await metrics.tick();
  await metrics.tick();
  expect(asked).toEqual([METRICS_WATCH_MS, METRICS_WATCH_MS]);
  world.clock.jump(METRICS_WATCH_MS / 2 + 1);
  await metrics.look(MACHINE);
  await metrics.tick();
  expect(asked).toHaveLength(3);
});
