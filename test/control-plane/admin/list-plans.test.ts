// No page of an operator's list reads or sorts its whole table: SQLite's query plans say so.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Http } from '../../../control-plane/base/http/server.ts';
import { openOperator } from '../../kit/operator.ts';
import { LISTS } from '../../kit/operator-lists.ts';
import { type RecordingDb, recordingDb, planSteps } from '../../kit/recording-db.ts';
import { textOf } from '../../kit/sql-text.ts';
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

/** Walks along an index in the order of the list, which end with the page. Only rows of one millisecond are sorted. */
const IN_ORDER = /^SCAN \w+ USING INDEX \w+_(by_time|page):|^USE TEMP B-TREE FOR LAST TERM/;

/** Reads indexes that hold nothing but what waits, or a page of each state, and sorts that. */
const PICKED =
  /^SCAN (page|waiting|reasons|\w+ USING COVERING INDEX (deposits_noted|deposit_transfers_in_suspense)):|^USE TEMP B-TREE/;

test.each(LISTS.map((list) => [list.path, list] as const))('GET %s', async (path, list) => {
  await world.db.tx('test.fill', (tx) => list.fill(tx, world.rooms.ledger));
  recording.sent.length = 0;
  const ask = async (cursor: string): Promise<string> => {
    const url = `${path}${path.includes('?') ? '&' : '?'}limit=2${cursor}`;
    const { body } = await http.inject({ method: 'GET', url });
    return `&cursor=${(JSON.parse(body) as { next_cursor: string }).next_cursor}`;
  };
  await ask(await ask(''));
  const pages = recording.sent.filter((each) => /order by .* limit \?$/s.test(textOf(each)));
  expect(pages).toHaveLength(2);
  const steps = await planSteps(world.db, pages);
  const allowed = list.isPicked === true ? PICKED : IN_ORDER;
  expect(steps.filter((step) => /^SCAN |TEMP B-TREE/.test(step) && !allowed.test(step))).toEqual([]);
});

/** Rows that are few however large the fleet is, and indexes that hold nothing else. */
const FEW =
  /^SCAN (\w+ USING (COVERING )?INDEX (offerings_gpus|machines_by_state|machines_copied|model_replicas_live|disputes_waiting|notice_mails_refused|deposit_transfers_in_suspense)|leases|pauses|due|dead|waiting|found|open_times|pragma_page_(count|size)|.*VIRTUAL TABLE)/;

test('GET /admin/overview', async () => {
  recording.sent.length = 0;
  await http.inject({ method: 'GET', url: '/admin/overview' });
  expect(recording.sent.length).toBeGreaterThan(15);
  const steps = await planSteps(world.db, recording.sent);
  expect(steps.filter((step) => step.startsWith('SCAN ') && !FEW.test(step))).toEqual([]);
});
