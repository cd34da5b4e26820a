// A blob that a row names but that the store does not have: a disk that is not mounted, a control plane with another folder, or a restored database
// beside older files. The caller must not read that it never existed, and the operator must know.
import { fail } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import type { Blobs } from './blobs.ts';
import { isKeyOf } from './keys.ts';
import type { Claims } from './sweep.ts';

const RETRY_S = 60;

/** The same store. `open` throws ServiceError `unavailable` if the blob is missing although its owner has a row with it. */
export function tellMissing(blobs: Blobs, namedBy: Claims, log: Log): Blobs {
  const open: Blobs['open'] = async (key) => {
    const blob = await blobs.open(key);
    if (blob !== undefined) return blob;
    // A row is deleted before its blob, so the blob of a file that has just been deleted has none.
    const claimed = Object.entries(namedBy).find(([owner]) => isKeyOf(owner, key))?.[1];
    if (claimed === undefined || (await claimed([key])).length === 0) return undefined;
    log.error(
      { key, store: blobs.place, remedy: 'mount the disk, name the store in which it is, or put the file back' },
      'a file of which the database knows is not in the store; callers get 503',
    );
    return fail('unavailable', {
      detail:
        'The file is known, but its content cannot be read at the moment. Try again later; the operator has been told.',
      retryAfterSeconds: RETRY_S,
    });
  };
  // The store stays the prototype, so that each other call reaches the function that it has then.
  return Object.assign(Object.create(blobs) as Blobs, { open });
}
