// No search over transfers reads their whole table: SQLite's query plans say so.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Http } from '../../../control-plane/base/http/server.ts';
import { openOperator } from '../../kit/operator.ts';
import { planSteps, type RecordingDb, recordingDb } from '../../kit/recording-db.ts';
import { openWorldOver, type World } from '../../kit/world.ts';

let world: World;
let http: Http;
let recording: RecordingDb;
beforeEach(async () => {
  ({ world, over: recording } = await openWorldOver(recordingDb));
  ({ http } = openOperator(world));
});
afterEach(async () => {
  await http.close();
  await world.close();
});

test.each([
  [{}, 'transfers_in_time'],
  [{ org_id: 'o' }, 'transfers_from_wallets'],
  [{ org_id: 'o', kind: 'k' }, 'transfers_to_wallets'],
  [{ subject_id: 's' }, 'transfers_by_subject'],
  [{ subject_id: 's', org_id: 'o', kind: 'k' }, 'transfers_by_subject'],
])('a search by %j reads along %s, and never the whole table', async (query: Record<string, string>, index) => {
  recording.sent.length = 0;
  const parameters = new URLSearchParams({ from: '2000-01-01T00:00:00Z', ...query });
  await http.inject({ method: 'GET', url: `/admin/transfers?${parameters.toString()}` });
  const pages = recording.sent.filter(({ sql }) => sql.includes('from transfers'));
  expect(pages).toHaveLength(1);
  const steps = await planSteps(world.db, pages);
  expect(steps.filter((step) => step.startsWith('SCAN transfers'))).toEqual([]);
  expect(steps.some((step) => step.startsWith('SEARCH transfers USING') && step.includes(`INDEX ${index} `))).toBe(
    true,
  );
});
