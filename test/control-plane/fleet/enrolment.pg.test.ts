// A host on PostgreSQL that uses two enrolment tokens at the same moment.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { text } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { inventoryOf } from '../../kit/machines.ts';
import { type Interleaved, interleave } from '../../kit/interleave.ts';
import { openWorldOver, type World } from '../../kit/world.ts';
import { z } from 'zod';

const SEEDS = process.env['SOAK'] === '1' ? Array.from({ length: 60 }, (_, i) => i + 1) : [1, 2, 3, 4];
const KEY = 'k'.repeat(43);

let world: World;
let interleaved: Interleaved;
beforeEach(async () => {
  ({ world, over: interleaved } = await openWorldOver(interleave));
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

async function newToken(): Promise<string> {
  const org = await world.rooms.accounts.createOrg('supplier');
  const nothing = { gpuCount: null, gpuType: null, vramPerGpuGb: null };
  const declared = { ...nothing, region: 'eu', priceUcentsPerHour: 1n, tier: 'on_demand' } as const;
  const { token } = await world.db.tx('register', async (tx) => {
    await world.rooms.supply.registerSupplier(tx, org.id);
    return world.rooms.supply.registerMachine(tx, org.id, declared);
  });
  return token;
}

describe.each(SEEDS)('in the order of seed %d', (seed) => {
  test('it becomes one machine, and the other enrolment is refused', async () => {
    const tokens = [await newToken(), await newToken()];
    const enrolments = tokens.map(
      (token) => () =>
        world.rooms.supply.enroll({ token, public_key: KEY, inventory: inventoryOf(1, () => `of-${seed}`) }),
    );
    const results = await interleaved.run(seed, enrolments);
    const refused = results.filter((result) => result.status === 'rejected');
    const rows = await world.db.read.all(
      z.object({ id: text }),
      sql`select id from machines where public_key = ${KEY}`,
    );
    expect([rows.length, refused.length]).toEqual([1, 1]);
    expect(refused[0]?.reason).toMatchObject({ code: 'conflict' });
    expect(String(refused[0]?.reason)).toContain(rows[0]?.id);
  });
});
