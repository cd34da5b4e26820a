// The parts of uploads that have ended, on a blob store that is slow: they are removed in runs that are short enough for the watchdog.
import { expect, test } from 'vitest';
import { countRow } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { storedOf } from '../../../control-plane/models/files/store.ts';
import { insertPart, insertUpload, setStatus } from '../../../control-plane/models/files/uploads-store.ts';
import { scriptedBlobs } from '../../kit/scripted-blobs.ts';
import { whileTimePasses } from '../../kit/virtual-clock.ts';
import { openWorld } from '../../kit/world.ts';

const PARTS = 1_000;
const REMOVE_MS = 1_000;
const never = new AbortController().signal;

test('a run of the cleaning ends within a minute, and the next runs finish the rest', async () => {
  const removed = new Set<string>();
  const seen = { under: 0, most: 0 };
  const world = await openWorld(1, {
    blobs: (core) =>
      scriptedBlobs(core, {
        remove: async (key) => {
          seen.most = Math.max(seen.most, (seen.under += 1));
          await clock.sleep(REMOVE_MS);
          seen.under -= 1;
          removed.add(key);
        },
      }),
  });
  const { clock, db, rooms } = world;
  const { orgId } = await world.customer(100);
  const upload = {
    id: 'upload_1',
    org_id: orgId,
    filename: 'a',
    purpose: 'fine-tune' as const,
    mime_type: 'text/jsonl',
  };
  await db.tx('test.parts', async (tx) => {
    await insertUpload(tx, { ...upload, bytes: PARTS, created_ms: 0, expires_ms: clock.now() });
    for (let i = 0; i < PARTS; i += 1)
      await insertPart(tx, {
        id: `part_${i}`,
        upload_id: upload.id,
        blob_key: `files-blob_${i}`,
        bytes: 1,
        created_ms: 0,
      });
    await setStatus(tx, upload.id, { from: 'pending', to: 'cancelled' });
  });
  const outcomes: unknown[] = [];
  do {
    const startMs = clock.monotonicMs();
    outcomes.push(await whileTimePasses(clock, rooms.files.uploads.clean(never), 250));
    expect(clock.monotonicMs() - startMs).toBeLessThan(60_000);
  } while (outcomes.at(-1) === 'again');
  expect(outcomes).toEqual(['again', 'again', undefined]);
  expect([removed.size, seen.most]).toEqual([PARTS, 16]);
  expect(await db.read.one(countRow, sql`select count(*) as count from upload_parts`)).toEqual({ count: 0 });
  await world.close();
});

test('however many uploads expire at once, none counts for the limits of its organisation after the run and those that follow it', async () => {
  const world = await openWorld(1);
  const { clock, db, rooms } = world;
  const { orgId } = await world.customer(100);
  const common = { org_id: orgId, filename: 'a', purpose: 'fine-tune' as const, mime_type: 'text/jsonl', bytes: 1 };
  await db.tx('test.uploads', async (tx) => {
    for (let i = 0; i < 250; i += 1)
      await insertUpload(tx, { ...common, id: `upload_${i}`, created_ms: 0, expires_ms: clock.now() });
  });
  await clock.advance(30 * 60_000);
  while ((await rooms.files.uploads.clean(never)) === 'again');
  expect(await storedOf(db.read, orgId)).toEqual({ count: 0, bytes: 0 });
  await world.close();
});
