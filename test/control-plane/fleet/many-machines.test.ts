// Registering and enrolling a machine reads no table as a whole, so it costs the same whatever a supplier and the fleet already have.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../control-plane/base/db/columns.ts';
import { type Db, type Sql, type Tx, sql } from '../../../control-plane/base/db/db.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
/** What the rooms have sent to the database. */
let sent: Sql[] = [];
beforeEach(async () => {
  world = await openWorld(1, { processOn: ({ db, clock }) => ({ db: recording(db), clock }) });
  sent = [];
});
afterEach(() => world.close());

function recording(db: Db): Db {
  const noted = (tx: Tx): Tx => ({
    ...tx,
    all: (row, statement) => (sent.push(statement), tx.all(row, statement)),
    one: (row, statement) => (sent.push(statement), tx.one(row, statement)),
    run: (statement) => (sent.push(statement), tx.run(statement)),
  });
  return {
    ...db,
    read: {
      all: (row, statement) => (sent.push(statement), db.read.all(row, statement)),
      one: (row, statement) => (sent.push(statement), db.read.one(row, statement)),
    },
    tx: (name, body) => db.tx(name, (tx) => body(noted(tx))),
  };
}

test('no statement of a registration or an enrolment scans a table', async () => {
  await world.machine({ gpus: 2 });
  expect(sent.length).toBeGreaterThan(20);
  const scans = new Set<string>();
  for (const statement of sent) {
    const steps = await world.db.read.all(z.object({ detail: text }), sql`explain query plan ${statement}`);
    for (const { detail } of steps) if (detail.startsWith('SCAN ')) scans.add(`${detail}: ${statement.sql}`);
  }
  // The few rows of a statement itself, and tables that have one row for each contract that waits for GPUs.
  const whole = [...scans].filter(
    (scan) => !/^SCAN (CONSTANT ROW|claimants|\d+ CONSTANT ROWS|w\b|slot_wants)/.test(scan),
  );
  expect(whole).toEqual([]);
});
