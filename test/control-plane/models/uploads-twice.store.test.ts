// Two equal requests complete one upload, and the slower one finds that the parts are gone.
import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { openCheck } from '../../../control-plane/models/files/check.ts';
import { insertFile } from '../../../control-plane/models/files/store.ts';
import { insertPart, insertUpload, setStatus } from '../../../control-plane/models/files/uploads-store.ts';
import { scriptedBlobs } from '../../kit/scripted-blobs.ts';
import { openWorld, type World } from '../../kit/world.ts';

const [ID, PART, FILE] = ['upload_1', 'part_1', 'file-1'];
const gone = new AbortController().signal;

/** A pending upload with one part. `onRead` runs while the part is looked for, which is then gone. */
async function openUpload(onRead: (world: World, orgId: string) => Promise<void>): Promise<[World, string]> {
  let orgId = '';
  const world: World = await openWorld(1, {
    blobs: (core) =>
      scriptedBlobs(core, {
        open: async () => {
          await onRead(world, orgId);
          return undefined;
        },
        write: async (_key, source) => {
          await Readable.from(source).toArray();
          throw new Error('the part was read');
        },
        remove: async () => undefined,
      }),
  });
  ({ orgId } = await world.customer(100));
  const upload = { id: ID, org_id: orgId, filename: 'a', purpose: 'fine-tune' as const, mime_type: 'text/jsonl' };
  const expires_ms = world.clock.now() + 60_000;
  await world.db.tx('test.upload', async (tx) => {
    await insertUpload(tx, { ...upload, bytes: 1, created_ms: 0, expires_ms });
    await insertPart(tx, { id: PART, upload_id: ID, blob_key: 'files-blob', bytes: 1, created_ms: 0 });
  });
  return [world, orgId];
}

const complete = (world: World, orgId: string): Promise<{ body?: unknown }> =>
  world.rooms.files.uploads.complete({
    caller: { orgId, principalId: 'apk', scopes: [] },
    params: { id: ID },
    body: { part_ids: [PART] },
    gone,
    settle: async () => undefined,
  });

test('it gets the same answer as the one that was faster', async () => {
  const [world, orgId] = await openUpload(({ db }, org_id) =>
    db.tx('test.completed', async (tx) => {
      const report = openCheck().report();
      const stored = { blob_key: 'files-whole', bytes: 1, sha256: '0'.repeat(64), report, created_ms: 1 };
      await insertFile(tx, { ...stored, id: FILE, org_id, filename: 'a', purpose: 'fine-tune' });
      await setStatus(tx, ID, { from: 'pending', to: 'completed', made: { fileId: FILE, partIds: [PART] } });
    }),
  );
  expect(await complete(world, orgId)).toMatchObject({ body: { status: 'completed', file: { id: FILE } } });
  await world.close();
});

test('without another one, a part that is gone is a conflict', async () => {
  const [world, orgId] = await openUpload(async () => undefined);
  await expect(complete(world, orgId)).rejects.toMatchObject({ code: 'conflict' });
  await world.close();
});
