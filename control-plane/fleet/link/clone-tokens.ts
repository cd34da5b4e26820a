// Clone tokens tell a host from a copy of its disk. Both have the same key, so the proof of the link cannot tell them apart.
//
// When its link comes up, and then once a minute, a host gets a new token: a number, sealed so that nobody can make one up. The
// host stores the token on its disk and confirms that (`clone_token_kept`). When it links again, it shows the newest token that
// it has stored. A copy has only the token of the moment at which its disk was copied.
//
//   `issued`  the highest number that was sent to the host
//   `kept`    the highest number that some host with this identity has surely stored; kept <= issued
//
// Example:
//   10:00  The host gets token 7, stores and confirms it: issued 7, kept 7. Somebody copies its disk.
//   10:01  The host confirms token 8, and at 10:02 token 9: issued 9, kept 9.
//   10:03  A machine with this identity links and shows 7. 7 < 9, so it is a copy, or the disk of the host was set back.
//          `show` returns false, and the rooms above place nothing new on the machine.
//   10:04  The real host links again and shows 9: that is fine. If the copy has confirmed token 10 before that, the host counts as
//          the copy. That is harmless: either way the operator has to end one of them (`admin machine unify`).
//
// Both numbers are exact in the memory of the process that has the link. The database has bounds of them, because a row for each
// machine and minute would cost more than all else that a machine at rest costs:
// - `issued` of the row is raised by TOKENS_RESERVED at a time, before the first of these numbers is sent. So it is never below a
//   number that was sent, and two processes never issue the same number. The numbers that a process has not used are skipped.
// - `kept` of the row is written every 10 minutes (presence.ts), at the end of the link, and at a planned stop. Until then it is too
//   low. So if the process crashes, a copy with a token of the last minutes counts as the host once. The host still has a newer
//   token, and it is found out when the host links again: the newest link wins, so the two take turns.
//
// Why both numbers are needed:
// - The link can break after token 9 was sent. The host may have stored it (it shows 9) or not (it shows 8). Both are fine,
//   because `kept` is still 8.
// - A shown number above `issued` means that this database was restored from a backup. The host is right: both numbers rise to it.
// - A machine with a new key (its host has enrolled again) starts with a new row, whatever it shows.
//
// What must never happen:
// - `kept` rises before the host has confirmed. A crash of the host would then make it look like a copy of itself.
// - `kept` falls: a copy would pass.
import { z } from 'zod';
import { int } from '../../base/db/columns.ts';
import { type Db, join, type Tx, sql } from '../../base/db/db.ts';
import type { Sealing } from '../../base/http/sealing.ts';

/** The token in a hello, and the enrolled key of the machine. A host that has enrolled again starts with a new row. */
export interface ShownToken {
  publicKey: string;
  token: string | null;
}

export interface TokenVerdict {
  /**
   * False if somebody with the same identity has stored a newer token since: two hosts run from copies of one disk, or the disk of the host
   * was set back.
   */
  isGenuine: boolean;
  /** Takes over the counts in memory. The caller calls it after the commit. */
  take(): void;
}

export interface CloneTokens {
  /** Takes the token of a hello. */
  show(tx: Tx, machineId: string, shown: ShownToken): Promise<TokenVerdict>;
  /** Issues a new token that the host has to store. */
  next(machineId: string): Promise<string>;
  /** The host has stored this token on its disk. From now on an older token belongs to a copy. */
  kept(machineId: string, value: string): void;
  /** Called when the link of the machine is down. Writes the counts of its row that only memory has. */
  leave(machineId: string): Promise<void>;
  /** Writes the counts of all rows that only memory has. */
  store(): Promise<void>;
}

interface CloneTokensDeps {
  db: Db;
  sealing: Sealing;
}

/** What this process knows about the tokens of a machine. */
interface Counts {
  publicKey: string;
  /** The highest number that was sent. */
  issued: number;
  /** Numbers up to this one are reserved for this process. */
  reserved: number;
  kept: number;
  /** The value of `kept` in the row. It may be lower than `kept` in memory. */
  storedKept: number;
}

/** A machine gets a token each minute, so its row is written about once an hour. */
const TOKENS_RESERVED = 64;
const ROWS_PER_WRITE = 200;
const NumbersRow = z.object({ issued: int, kept: int });

export function openCloneTokens({ db, sealing }: CloneTokensDeps): CloneTokens {
  const counts = new Map<string, Counts>();
  const placeOf = (machineId: string): string => `cloneToken/${machineId}`;
  /** The number in a token. A token that this control plane did not issue counts as no token. */
  const numberOf = (machineId: string, value: string | null): number => {
    if (value === null) return 0;
    try {
      return Number(sealing.open(placeOf(machineId), value));
    } catch {
      return 0;
    }
  };
  const store = async (machineIds: readonly string[]): Promise<void> => {
    const behind = machineIds.flatMap((machineId) => {
      const count = counts.get(machineId);
      return count !== undefined && count.kept > count.storedKept ? [{ machineId, count, kept: count.kept }] : [];
    });
    for (let i = 0; i < behind.length; i += ROWS_PER_WRITE) {
      const piece = behind.slice(i, i + ROWS_PER_WRITE);
      await db.tx('link.clone_tokens_kept', (tx) => writeKept(tx, piece));
      for (const { count, kept } of piece) count.storedKept = kept;
    }
  };
  return {
    show: async (tx, machineId, { publicKey, token }) => {
      const number = numberOf(machineId, token);
      const before = counts.get(machineId);
      const known = before?.publicKey === publicKey ? before.kept : 0;
      const { issued: reserved, kept } = await show(tx, machineId, { publicKey, number, known });
      const count = { publicKey, issued: reserved - TOKENS_RESERVED, reserved, kept, storedKept: kept };
      return { isGenuine: kept === number, take: () => void counts.set(machineId, count) };
    },
    next: async (machineId) => {
      const count = counts.get(machineId);
      if (count === undefined) throw new Error(`machine ${machineId} has shown no token yet`);
      if (count.issued === count.reserved) {
        count.reserved = await db.tx('link.clone_tokens_reserved', (tx) => reserve(tx, machineId));
        count.issued = count.reserved - TOKENS_RESERVED;
      }
      count.issued += 1;
      return sealing.seal(placeOf(machineId), String(count.issued));
    },
    kept: (machineId, value) => {
      const number = numberOf(machineId, value);
      const count = counts.get(machineId);
      if (count !== undefined && number > count.kept && number <= count.issued) count.kept = number;
    },
    leave: async (machineId) => {
      const count = counts.get(machineId);
      await store([machineId]);
      // The machine may have a new link by now, whose counts must stay.
      if (counts.get(machineId) === count) counts.delete(machineId);
    },
    store: () => store([...counts.keys()]),
  };
}

/**
 * Compares the shown number with the row, and reserves numbers. The shown number is `kept` afterwards unless it is too old. `known` is a
 * number that some host has surely stored, although the row may not have it yet.
 */
async function show(
  tx: Tx,
  machineId: string,
  { publicKey, number, known }: { publicKey: string; number: number; known: number },
): Promise<z.infer<typeof NumbersRow>> {
  const isNew = sql`clone_tokens.public_key <> excluded.public_key`;
  const kept = sql`case when clone_tokens.kept > ${known} then clone_tokens.kept else ${known} end`;
  const row = await tx.one(
    NumbersRow,
    sql`insert into clone_tokens (machine_id, public_key, issued, kept)
        values (${machineId}, ${publicKey}, ${number + TOKENS_RESERVED}, ${number})
        on conflict (machine_id) do update set public_key = excluded.public_key,
          issued = case when ${isNew} or clone_tokens.issued < excluded.kept then excluded.issued
            else clone_tokens.issued + ${TOKENS_RESERVED} end,
          kept = case when ${isNew} or excluded.kept >= ${kept} then excluded.kept else ${kept} end
        returning issued, kept`,
  );
  if (row === undefined) throw new Error('an insert returned no row');
  return row;
}

async function reserve(tx: Tx, machineId: string): Promise<number> {
  const row = await tx.one(
    NumbersRow,
    sql`update clone_tokens set issued = issued + ${TOKENS_RESERVED} where machine_id = ${machineId} returning issued, kept`,
  );
  if (row === undefined) throw new Error(`machine ${machineId} has no row of tokens`);
  return row.issued;
}

/** Leaves a row unchanged if the host has enrolled again since, or if the row has a newer `kept`. */
async function writeKept(tx: Tx, rows: readonly { machineId: string; count: Counts; kept: number }[]): Promise<void> {
  const values = rows.map(({ machineId, count, kept }) => sql`(${machineId}, ${count.publicKey}, ${kept})`);
  const kept = sql`cast(given.column3 as bigint)`;
  await tx.run(
    sql`update clone_tokens set kept = ${kept} from (values ${join(values)}) as given
        where machine_id = given.column1 and public_key = given.column2 and kept < ${kept} and issued >= ${kept}`,
  );
}
