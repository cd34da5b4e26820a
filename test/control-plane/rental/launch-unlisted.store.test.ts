// The last offering leaves the market between the checks of a launch and its insert, on a server with other transactions.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Db, sql } from '../../../control-plane/base/db/db.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { openWorldOver, type World, type WorldAccount } from '../../kit/world.ts';
import { textOf } from '../../kit/sql-text.ts';

interface Fading {
  db: Db;
  /** While it is true, nothing is listed any more when a launch reads the region of the offers. */
  fades: { now: boolean };
}

function fading(db: Db): Fading {
  const fades = { now: false };
  const tx: Db['tx'] = (name, body) =>
    db.tx(name, (inner) =>
      body({
        ...inner,
        one: async (row, statement) => {
          if (fades.now && textOf(statement).startsWith('select region from offerings'))
            await inner.run(sql`update offerings set listed = 0`);
          return inner.one(row, statement);
        },
      }),
    );
  return { db: { ...db, tx }, fades };
}

let world: World;
let over: Fading;
let who: WorldAccount;
beforeEach(async () => {
  ({ world, over } = await openWorldOver(fading));
  who = await world.customer(100_000);
  await world.machine({ gpus: 1 });
  await world.launch(who);
});
afterEach(() => world.close());

test('a launch that found all hosts busy is refused as without an offer', async () => {
  over.fades.now = true;
  await expect(world.launch(who)).rejects.toMatchObject({ code: 'image_unavailable' });
});

test('a launch that is pinned to it is refused as with an offering that is not listed', async () => {
  const [offering] = await listedOfferings(world.db.read, { count: 1 });
  over.fades.now = true;
  await expect(world.launch(who, { offering_id: offering?.id ?? '' })).rejects.toMatchObject({
    code: 'offering_unavailable',
  });
});
