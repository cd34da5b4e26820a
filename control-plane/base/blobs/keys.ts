// The keys of blobs. A key names the room that owns the blob.
import type { Ids } from '../../../shared/ids.ts';

/** Rooms that store blobs. */
export type BlobOwner = 'files' | 'videos' | 'finetuning';

export function newKey(owner: BlobOwner, ids: Ids): string {
  return `${owner}-${ids.prefixed('blob')}`;
}

/** The room that owns a blob. No path ever contains a name from a caller, because every other form of a key is refused. */
export function ownerOf(key: string): string {
  const owner = ownerIn(key);
  if (owner === undefined) throw new Error(`${key} is not the key of a blob`);
  return owner;
}

/** Whether a name in the store is the key of one of this owner's blobs. Others may put something beside the blobs. */
export function isKeyOf(owner: string, name: string): boolean {
  return ownerIn(name) === owner;
}

function ownerIn(key: string): string | undefined {
  return /^([a-z]+)-blob_[a-z0-9]+$/.exec(key)?.[1];
}
