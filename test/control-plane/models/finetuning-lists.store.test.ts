// Pages of jobs and checkpoints, newest first: each page reads as many rows as it shows, however many jobs an organisation has had.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { pageOfCheckpoints } from '../../../control-plane/models/finetuning/files.ts';
import { pageOfJobs } from '../../../control-plane/models/finetuning/store.ts';
import { planOf, recordingDb } from '../../kit/recording-db.ts';
import { openTraining, type Training } from './training-world.ts';

const PAGE = 2;

let training: Training;
beforeEach(async () => {
  training = await openTraining();
});
afterEach(() => training.world.close());

/** The ids that pages of `PAGE` rows show, from the first page to the last. */
async function walk(pageAfter: (afterId: string | undefined) => Promise<{ id: string }[]>): Promise<string[]> {
  const ids: string[] = [];
  for (let page: { id: string }[] | undefined; page === undefined || page.length > 0;) {
    page = await pageAfter(ids.at(-1));
    expect(page.length).toBeLessThanOrEqual(PAGE);
    ids.push(...page.map(({ id }) => id));
  }
  return ids;
}

test('pages of jobs show each job once, newest first, also jobs of the same millisecond', async () => {
  const { world, who } = training;
  const ids: string[] = [];
  for (const ms of [0, 0, 0, 1, 1]) {
    world.clock.step(ms);
    ids.push(await training.create());
  }
  const shown = await walk((afterId) => pageOfJobs(world.db.read, who.orgId, { afterId, count: PAGE }));
  expect(shown).toEqual(ids.toSorted().toReversed());
});

test('pages of checkpoints show each verified one once, newest first', async () => {
  const { db } = training.world;
  const files = [1, 1, 2, 3, 3].map((ms, index) => ({ id: `ff-${index}`, ms, state: 'verified' }));
  await db.tx('test.files', async (tx) => {
    for (const { id, ms, state } of [...files, { id: 'ff-9', ms: 9, state: 'wrong' }])
      await tx.run(
        sql`insert into finetuning_files (id, job_id, workload_id, kind, name, step, bytes, sha256, state, created_ms)
            values (${id}, 'ftjob', 'w', 'checkpoint', ${id}, 1, 1, 'a', ${state}, ${ms})`,
      );
  });
  const shown = await walk((afterId) => pageOfCheckpoints(db.read, 'ftjob', { afterId, count: PAGE }));
  expect(shown).toEqual(files.map(({ id }) => id).toReversed());
});

test('a page of checkpoints after anything but a checkpoint of the job is refused, as a page of jobs is', async () => {
  const { world, who } = training;
  const { fineTuning } = world.rooms;
  const { id } = await training.running();
  await training.upload(id, { step: 1 }, 'first');
  await training.upload(id, { step: 2 }, 'second');
  const pageAfter = (after?: string) => fineTuning.checkpoints(who.orgId, id, { after, limit: 1 });
  const { data } = await pageAfter();
  const newest = data[0]?.id ?? '';
  expect((await pageAfter(newest)).data).toMatchObject([{ step_number: 1 }]);
  const other = await training.create();
  const refused = { code: 'validation_failed', details: { errors: [{ field: 'after' }] } };
  await expect(pageAfter('ftckpt_unknown')).rejects.toMatchObject(refused);
  await expect(fineTuning.checkpoints(who.orgId, other, { after: newest, limit: 1 })).rejects.toMatchObject(refused);
});

test('neither list is sorted: the index has the order', async () => {
  const { db } = training.world;
  if (db.dialect !== 'sqlite') return;
  const recording = recordingDb(db);
  for (const afterId of [undefined, 'a']) {
    await pageOfJobs(recording.db.read, 'o', { afterId, count: PAGE });
    await pageOfCheckpoints(recording.db.read, 'j', { afterId, count: PAGE });
  }
  const plans = await Promise.all(recording.sent.map((statement) => planOf(db, statement)));
  expect(plans.map((plan) => /INDEX .*$/m.exec(plan)?.[0])).toEqual([
    'INDEX finetuning_jobs_of_org (org_id=?)',
    'INDEX finetuning_files_of_job (job_id=? AND kind=?)',
    'INDEX finetuning_jobs_of_org (org_id=? AND created_ms<?)',
    'INDEX finetuning_files_of_job (job_id=? AND kind=? AND created_ms<?)',
  ]);
  expect(plans.filter((plan) => plan.includes('TEMP B-TREE'))).toEqual([]);
});
