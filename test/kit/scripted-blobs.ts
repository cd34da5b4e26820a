// A blob store without a disk, for tests that script what it does.
import type { Blobs } from '../../control-plane/base/blobs/blobs.ts';
import { openDiskBlobs } from '../../control-plane/base/blobs/local-disk.ts';
import type { Core } from '../../control-plane/settings.ts';

/** `script` has all that the test calls. The rest fails, because the folder does not exist. */
export function scriptedBlobs({ clock, ids, log }: Pick<Core, 'clock' | 'ids' | 'log'>, script: Partial<Blobs>): Blobs {
  const presignedUrls = { signer: () => Promise.reject(new Error('nobody asks for a URL here')) };
  const reserve = { share: 0, bytes: 0 };
  return { ...openDiskBlobs('/nonexistent', { clock, ids, log, reserve, presignedUrls }), ...script };
}
