// A blob that a row names but that is not there: callers are not told that it never existed, and the log says where it is missing.
import { expect, test } from 'vitest';
import { tellMissing } from '../../../../control-plane/base/blobs/missing.ts';
import { createLog } from '../../../../shared/log.ts';
import { createIds } from '../../../../shared/ids.ts';
import { seededRng } from '../../../../shared/rng.ts';
import { scriptedBlobs } from '../../../kit/scripted-blobs.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';

const clock = virtualClock();
const KEY = 'files-blob_1';

function open(named: readonly string[], key = KEY): { found: Promise<unknown>; written: string[] } {
  const written: string[] = [];
  const log = createLog('test', 'info', { write: (line) => void written.push(line) });
  const blobs = scriptedBlobs({ clock, ids: createIds(clock, seededRng(1)), log }, { open: async () => undefined });
  const files = async (keys: readonly string[]): Promise<string[]> => keys.filter((each) => named.includes(each));
  return { found: tellMissing(blobs, { files }, log).open(key), written };
}

test('it is unavailable, and one line of the log names the key and the store', async () => {
  const { found, written } = open([KEY]);
  await expect(found).rejects.toMatchObject({ code: 'unavailable' });
  expect(written).toHaveLength(1);
  expect(JSON.parse(written[0] ?? '')).toMatchObject({ level: 50, key: KEY, store: '/nonexistent' });
});

test.each([
  ['has no row any more', []],
  ['belongs to a room that nobody asks', [KEY], 'videos-blob_1'],
])('one that %s does not exist', async (_what, named, key = KEY) => {
  const { found, written } = open(named, key);
  expect(await found).toBeUndefined();
  expect(written).toEqual([]);
});
