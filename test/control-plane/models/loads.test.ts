// What a process writes about the requests that it serves.
import { expect, test } from 'vitest';
import type { Db, Sql, Tx } from '../../../control-plane/base/db/db.ts';
import { openLoads } from '../../../control-plane/models/replicas/loads.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

test('a request that begins to wait does not claim that the replicas were read at that moment', async () => {
  const clock = virtualClock();
  const written: Sql[] = [];
  const tx = { run: async (statement: Sql) => written.push(statement) } as unknown as Tx;
  const db = { tx: async (_name: string, work: (tx: Tx) => Promise<unknown>) => work(tx) } as unknown as Db;
  const loads = openLoads({ db, clock, processId: 'prc_1', suspectsOf: () => [] });
  loads.noteWaiting('small', 1);
  const readMs = clock.now();
  await loads.save(readMs, () => false);
  await clock.advance(900);
  await loads.saveOne(tx, 'small');
  expect(written.map(({ values }) => values.at(-1))).toEqual([readMs, readMs]);
});
