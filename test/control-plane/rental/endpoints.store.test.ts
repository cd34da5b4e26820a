// Secrets of endpoints in the database are sealed, so a copy of the database opens no instance.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

test('the password of the application is sealed in the database, and bound to its instance', async () => {
  await world.machine({ gpus: 2 });
  const who = await world.customer(100_000);
  const [id, other] = [await world.launch(who), await world.launch(who)];
  const { endpoints } = world.rooms;
  const endpoint = await endpoints.find(world.db.read, id);
  if (endpoint === undefined) throw new Error('the instance has no endpoint');
  expect(endpoints.appPassword(endpoint)).toMatch(/^[\w-]{32}$/);
  const Row = z.object({ app_password_sealed: text });
  const [row] = await world.db.read.all(Row, sql`select app_password_sealed from endpoints where instance_id = ${id}`);
  expect(JSON.stringify(row)).not.toContain(endpoints.appPassword(endpoint));
  await world.db.tx('swap', (tx) =>
    tx.run(sql`update endpoints set app_password_sealed = ${row?.app_password_sealed} where instance_id = ${other}`),
  );
  const swapped = await endpoints.find(world.db.read, other);
  if (swapped === undefined) throw new Error('the other instance has no endpoint');
  expect(() => endpoints.appPassword(swapped)).toThrow(/authenticate/);
});
