// The keys that this process has read lately, so that most requests are authenticated without the database.
//
// A revocation in this process drops the key from memory before it is answered. On SQLite there is no other process, so a key in memory is
// always valid. On PostgreSQL another process may have revoked it. There, only requests that confirm the key in a transaction of their own
// use the memory: `base/http` says for each route whether it does (`confirmsKey`).
//
// A suspension of the organisation is not confirmed there, so on PostgreSQL a key in memory is valid for a few seconds only.
//
// A read and a revocation may cross: the row is read, the key is revoked and dropped, and then the old row would be remembered. So a row is
// not remembered if any key was dropped while it was read.
import type { Caller } from '../http/route.ts';

export interface KnownKey {
  caller: Caller;
  /** Null: the key does not expire. */
  expiresMs: number | null;
  lastUsedMs: number | null;
  /** When the row was read, by the monotonic clock. */
  readMs: number;
}

export interface KnownKeys {
  find(hash: string): KnownKey | undefined;
  /** Reads a key with `read` and remembers it. */
  learn(hash: string, read: () => Promise<KnownKey | undefined>): Promise<KnownKey | undefined>;
  /** Drops a key that has ended. */
  drop(keyId: string): void;
  /** Drops the keys of an organisation that may do less than before. */
  dropOrg(orgId: string): void;
}

/** About 300 bytes each. */
const KEYS_MAX = 20_000;

export function openKnownKeys(): KnownKeys {
  const keys = new Map<string, KnownKey>();
  let drops = 0;
  const dropThose = (isGone: (caller: Caller) => boolean): void => {
    drops += 1;
    for (const [hash, { caller }] of keys) if (isGone(caller)) keys.delete(hash);
  };
  return {
    find: (hash) => keys.get(hash),
    learn: async (hash, read) => {
      const dropsBefore = drops;
      const key = await read();
      // A restriction ends by an event that this room does not see, so such a key is read each time.
      if (key === undefined || key.caller.restriction !== undefined || drops !== dropsBefore) return key;
      if (keys.size >= KEYS_MAX) keys.clear();
      keys.set(hash, key);
      return key;
    },
    drop: (keyId) => dropThose(({ principalId }) => principalId === keyId),
    dropOrg: (orgId) => dropThose((caller) => caller.orgId === orgId),
  };
}
