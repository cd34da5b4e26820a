// How much is read of many replicas: a step reads its own one, and a reading of all reads little of those that are known.
import { beforeEach, expect, test } from 'vitest';
import type { Query } from '../../../control-plane/base/db/db.ts';
import { wakeTimesMs } from '../../../control-plane/models/replicas/store.ts';
import { api } from '../../contract/api-of-test.ts';
import { planOf, recordingDb } from '../../kit/recording-db.ts';
import { live, loop, openReplicasForEachTest, POOL, server, startAll, tick, trusted } from './replica-world.ts';
import { textOf } from '../../kit/sql-text.ts';

const REPLICAS = 3;
openReplicasForEachTest(() => ({ min_replicas: REPLICAS, max_replicas: REPLICAS }));

/** What was read outside transactions, in the order of the statements. */
let statements: string[];
beforeEach(async () => {
  for (let n = 0; n < REPLICAS; n += 1) await trusted();
  await loop('model-replicas');
  await api.world.drive();
  await startAll();
  await tick();
  expect((await live()).map(({ state }) => state)).toEqual(['ready', 'ready', 'ready']);
  const { read } = api.world.db;
  const { all } = read;
  statements = [];
  read.all = ((row, statement) => {
    statements.push(textOf(statement));
    return all(row, statement);
  }) as Query['all'];
});

const readingsOfAll = (): number =>
  statements.filter((text) => /from model_replicas where state <> 'ended'/.test(text)).length;

test('a health check of a replica does not read the others', async () => {
  const before = server.looks;
  await api.world.clock.advance(10_000);
  await api.world.drive();
  expect([server.looks - before, readingsOfAll()]).toEqual([REPLICAS, 0]);
});

test('a reading of known replicas reads neither their deployments nor the times of earlier starts', async () => {
  await loop('model-replicas');
  expect(readingsOfAll()).toBe(1);
  expect(statements.filter((text) => /deployment|ready_ms/.test(text))).toEqual([]);
});

test('changes at the same time share one reading, which begins after them', async () => {
  await Promise.all(Array.from({ length: 9 }, () => loop('model-replicas')));
  expect(readingsOfAll()).toBeLessThanOrEqual(2);
});

test('failed starts do not delay the reading of how long starts have taken', async () => {
  const { db } = api.world;
  // PostgreSQL reads a table of three rows without an index.
  if (db.dialect !== 'sqlite') return;
  const recording = recordingDb(db);
  await wakeTimesMs(recording.db.read, POOL, 50);
  const plans = await Promise.all(recording.sent.map((statement) => planOf(db, statement)));
  expect(plans).toEqual([expect.stringContaining('model_replicas_woken')]);
});
