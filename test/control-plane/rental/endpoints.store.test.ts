// Endpoints in the database: their secrets are sealed, so a copy of the database opens no instance, and their ports come back without a search.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../control-plane/base/db/columns.ts';
import { join, sql } from '../../../control-plane/base/db/db.ts';
import { openEndpoints } from '../../../control-plane/rental/endpoints/endpoints.ts';
import { planOf, recordingDb } from '../../kit/recording-db.ts';
import { openWorld, openWorldOver, type World } from '../../kit/world.ts';
import { textOf } from '../../kit/sql-text.ts';

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

test('the ports of an instance that has ended are found by their numbers, not among all ports', async () => {
  const { world: watched, over } = await openWorldOver(recordingDb);
  await watched.machine();
  const who = await watched.customer(100_000);
  const id = await watched.run(who, { ports: [{ port: 6379, protocol: 'tcp' }] });
  const endpoint = await watched.rooms.endpoints.find(watched.db.read, id);
  const taken = [endpoint?.ssh_port, endpoint?.tcp_ports[0]?.public_port];
  const owner = z.object({ instance_id: text.nullable() });
  const owners = (): Promise<{ instance_id: string | null }[]> =>
    watched.db.read.all(owner, sql`select instance_id from endpoint_ports where port in (${taken[0]}, ${taken[1]})`);
  expect(await owners()).toEqual([{ instance_id: id }, { instance_id: id }]);
  over.sent.length = 0;
  await watched.end(who, id);
  expect(await owners()).toEqual([{ instance_id: null }, { instance_id: null }]);
  const released = over.sent.filter((statement) =>
    /update endpoint_ports set instance_id = null/.test(textOf(statement)),
  );
  expect(released).toHaveLength(1);
  // PostgreSQL reads the few ports of a test from end to end.
  const way = watched.db.dialect === 'sqlite' ? /USING INTEGER PRIMARY KEY/ : /endpoint_ports/;
  for (const statement of released) expect(await planOf(watched.db, statement)).toMatch(way);
  await watched.close();
});

test.each([0, 1, 500, 1_000, 1_001])(
  '%i open endpoints are read in pages, with turns for others in between',
  async (count) => {
    const { clock } = world;
    const { db, sent } = recordingDb(world.db);
    const idOf = (i: number): string => `i-${String(i).padStart(5, '0')}`;
    // Each third endpoint is closed, and each tenth has a port of its own.
    const open = Array.from({ length: count }, (_, i) => Math.floor((i * 3) / 2));
    const all = [...open.map((i) => ({ i, isOpen: 1 })), ...open.map((_, i) => ({ i: i * 3 + 2, isOpen: 0 }))];
    const tcpOf = (i: number): object[] => (i % 10 === 0 ? [{ port: 80, public_port: 50_000 + i }] : []);
    for (let from = 0; from < all.length; from += 100) {
      const rows = all
        .slice(from, from + 100)
        .map(
          ({ i, isOpen }) => sql`(${idOf(i)}, '', ${10_000 + i}, '', ${JSON.stringify(tcpOf(i))}, '', '', ${isOpen})`,
        );
      await db.tx('add', (tx) => tx.run(sql`insert into endpoints values ${join(rows)}`));
    }
    sent.length = 0;
    let turns = 0;
    const nextTurn = (): Promise<void> => {
      turns += 1;
      return clock.nextTurn();
    };
    const endpoints = openEndpoints({ ...world, clock: { ...clock, nextTurn } } as never);
    const expected = open.map((i) => ({ instance_id: idOf(i), ssh_port: 10_000 + i, tcp_ports: tcpOf(i) }));
    expect(await endpoints.openEndpoints(db.read)).toEqual(expected);
    const pages = sent.slice();
    expect([pages.length, turns]).toEqual([Math.floor(count / 500) + 1, Math.floor(count / 500)]);
    // PostgreSQL reads the few endpoints of a test from end to end.
    const way = db.dialect === 'sqlite' ? /endpoints_open/ : /endpoints/;
    for (const statement of pages) expect(await planOf(world.db, statement)).toMatch(way);
  },
);
