// The keys that sign presigned URLs. The newest key signs. An older one stays valid for the URLs that it has signed, until all have expired.
//
//   rotation at time T:   key 1 ── signs until T ──┬── its URLs expire at T + 7 days at the latest ──┐ forgotten
//                         key 2                    └── signs from T on ...
//
// A URL that names key 1 and expires later than T + 7 days was never made here, even if its signature is right: somebody else has the key.
// Every control plane reads the keys from the database, so a rotation counts for all of them at once.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import { int, text } from '../db/columns.ts';
import { type Db, type Sql, sql } from '../db/db.ts';
import type { Piece } from '../db/pieces.ts';
import { PRESIGNED_MS_MAX } from './blobs.ts';

export interface UrlKey {
  id: string;
  createdMs: number;
  /** No URL of this key is valid longer. Null for the key that signs now. */
  untilMs: number | null;
}

export interface UrlKeys {
  /** The key that signs now. */
  current(): Promise<UrlKey>;
  /** Undefined for a key that was never here, or that was revoked or forgotten. */
  find(id: string): Promise<UrlKey | undefined>;
  /** Newest first. */
  list(): Promise<UrlKey[]>;
  /** Makes a new key, which signs from now on. With `revoke`, all URLs that were signed before are invalid at once. */
  rotate(options: { revoke: boolean }): Promise<UrlKey>;
  /** Deletes keys whose last URL has expired. Returns their number. */
  forget(piece: Pick<Piece, 'limit'>): Promise<number>;
}

const CreatedRow = z.object({ created_ms: int });

export function openUrlKeys({ db, clock, ids }: { db: Db; clock: Clock; ids: Ids }): UrlKeys {
  const read = async (where: Sql): Promise<UrlKey[]> =>
    (await db.read.all(KeyRow, sql`${WITH_NEXT} ${where} order by created_ms desc, id desc`)).map(keyOf);
  return {
    current: async () => {
      const [key] = await read(NEWEST);
      if (key !== undefined) return key;
      await db.tx('blobs.first_url_key', (tx) =>
        tx.run(
          sql`insert into blob_url_keys (id, created_ms)
              select ${FIRST_KEY}, 0 where not exists (select 1 from blob_url_keys) on conflict do nothing`,
        ),
      );
      const [made] = await read(NEWEST);
      if (made === undefined) throw new Error('there is no key to sign URLs');
      return made;
    },
    find: async (id) => (await read(sql`where id = ${id}`))[0],
    list: () => read(sql``),
    rotate: async ({ revoke }) => {
      const id = ids.prefixed('urlkey');
      const nowMs = clock.now();
      const made = await db.tx('blobs.rotate_url_key', (tx) =>
        // The time is later than that of every other key, even if the clock of another control plane is ahead. So this key is the newest.
        tx.one(
          CreatedRow,
          sql`insert into blob_url_keys (id, created_ms)
              select ${id}, case when max(created_ms) >= ${nowMs} then max(created_ms) + 1 else ${nowMs} end from blob_url_keys
              returning created_ms`,
        ),
      );
      const createdMs = made?.created_ms ?? nowMs;
      // Only older keys are deleted. Another operator may have made a newer one in the meantime.
      if (revoke)
        await db.tx('blobs.revoke_url_keys', (tx) =>
          tx.run(sql`delete from blob_url_keys where created_ms < ${createdMs}`),
        );
      return { id, createdMs, untilMs: null };
    },
    forget: ({ limit }) =>
      db.tx('blobs.forget_url_keys', (tx) =>
        tx.run(
          sql`delete from blob_url_keys where id in (
                select id from (${WITH_NEXT}) old where next_ms <= ${clock.now() - PRESIGNED_MS_MAX} limit ${limit})`,
        ),
      ),
  };
}

const KeyRow = z.object({ id: text, created_ms: int, next_ms: int.nullable() });

/**
 * The id of the first key is the same on every control plane. So two of them that sign their first URLs at the same moment make one key.
 */
const FIRST_KEY = 'urlkey_0';
const NEWEST = sql`where next_ms is null`;

/** Each key with the time at which the next key was made; null for the newest key. */
const WITH_NEXT = sql`
  select id, created_ms, next_ms from (
    select id, created_ms, lead(created_ms) over (order by created_ms, id) as next_ms from blob_url_keys) keys`;

function keyOf({ id, created_ms: createdMs, next_ms: nextMs }: z.infer<typeof KeyRow>): UrlKey {
  return { id, createdMs, untilMs: nextMs === null ? null : nextMs + PRESIGNED_MS_MAX };
}
