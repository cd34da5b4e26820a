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
import { int, text } from '../../base/db/columns.ts';
import { type Db, type Tx, sql } from '../../base/db/db.ts';
import type { Sealing } from '../../base/http/sealing.ts';

export interface CloneTokens {
  /**
   * Takes the token of a hello. False if somebody with the same identity has stored a newer one since: two hosts run from copies of
   * one disk, or the disk of the host was set back.
   */
  show(machineId: string, shown: string | null): Promise<boolean>;
  /** Issues a new token that the host has to store. */
  next(machineId: string): Promise<string>;
  /** The host has stored this token on its disk. From now on an older token belongs to a copy. */
  kept(machineId: string, value: string): Promise<void>;
}

interface CloneTokensDeps {
  db: Db;
  sealing: Sealing;
  /** The enrolled public key. A host that has enrolled again starts with a new row. */
  machineKey(machineId: string): Promise<string | undefined>;
}

const CloneTokenRow = z.object({ public_key: text, issued: int, kept: int });

export function openCloneTokens({ db, sealing, machineKey }: CloneTokensDeps): CloneTokens {
  const placeOf = (machineId: string): string => `cloneToken/${machineId}`;
  /** Undefined for a token that this control plane did not issue. */
  const numberOf = (machineId: string, value: string | null): number | undefined => {
    if (value === null) return 0;
    try {
      return Number(sealing.open(placeOf(machineId), value));
    } catch {
      return undefined;
    }
  };
  return {
    show: async (machineId, shown) => {
      const key = (await machineKey(machineId)) ?? '';
      const number = numberOf(machineId, shown);
      return db.tx('link.clone_token_shown', async (tx) => {
        await tx.lock('machine', machineId);
        const row = await find(tx, machineId);
        if (row?.public_key !== key)
          await write(tx, machineId, { public_key: key, issued: number ?? 0, kept: number ?? 0 });
        if (row?.public_key !== key) return true;
        if (number === undefined || number < row.kept) return false;
        await write(tx, machineId, { ...row, issued: Math.max(row.issued, number), kept: number });
        return true;
      });
    },
    next: (machineId) =>
      db.tx('link.clone_token_next', async (tx) => {
        await tx.lock('machine', machineId);
        const row = (await find(tx, machineId)) ?? { public_key: '', issued: 0, kept: 0 };
        const issued = row.issued + 1;
        await write(tx, machineId, { ...row, issued });
        return sealing.seal(placeOf(machineId), String(issued));
      }),
    kept: async (machineId, value) => {
      const number = numberOf(machineId, value);
      if (number === undefined) return;
      await db.tx('link.clone_token_kept', (tx) =>
        tx.run(
          sql`update clone_tokens set kept = ${number} where machine_id = ${machineId} and kept < ${number} and issued >= ${number}`,
        ),
      );
    },
  };
}

function find(tx: Tx, machineId: string): Promise<z.infer<typeof CloneTokenRow> | undefined> {
  return tx.one(CloneTokenRow, sql`select public_key, issued, kept from clone_tokens where machine_id = ${machineId}`);
}

async function write(tx: Tx, machineId: string, row: z.infer<typeof CloneTokenRow>): Promise<void> {
  await tx.run(
    sql`insert into clone_tokens (machine_id, public_key, issued, kept) values (${machineId}, ${row.public_key}, ${row.issued}, ${row.kept})
        on conflict (machine_id) do update set public_key = excluded.public_key, issued = excluded.issued, kept = excluded.kept`,
  );
}
