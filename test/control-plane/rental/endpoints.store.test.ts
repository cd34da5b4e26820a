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

test('the key of the probes and the password of the application are sealed in the database, and bound to their instance', async () => {
  await world.machine({ gpus: 2 });
  const who = await world.customer(100_000);
  const [id, other] = [await world.launch(who), await world.launch(who)];
  const { endpoints } = world.rooms;
  const endpoint = await endpoints.find(world.db.read, id);
  if (endpoint === undefined) throw new Error('the instance has no endpoint');
  expect(endpoints.probePrivateKey(endpoint)).toMatch(/^-----BEGIN OPENSSH PRIVATE KEY-----/);
  const Row = z.object({ probe_private_key: text, app_password_sealed: text });
  const [row] = await world.db.read.all(
    Row,
    sql`select probe_private_key, app_password_sealed from endpoints where instance_id = ${id}`,
  );
  expect(row?.probe_private_key).not.toContain('PRIVATE KEY');
  expect(JSON.stringify(row)).not.toContain(endpoints.appPassword(endpoint));
  await world.db.tx('swap', (tx) =>
    tx.run(sql`update endpoints set probe_private_key = ${row?.probe_private_key} where instance_id = ${other}`),
  );
  const swapped = { ...endpoint, instance_id: other };
  expect(await endpoints.find(world.db.read, other)).toMatchObject({ probe_private_key: row?.probe_private_key });
  expect(() => endpoints.probePrivateKey(swapped)).toThrow(/authenticate/);
});
