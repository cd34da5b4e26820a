// Tells hosts from copies of them: each gets a new value every minute, and shows the newest that it has stored when it comes back.
import { z } from 'zod';
import { int, text } from '../../base/db/columns.ts';
import { type Db, type Tx, sql } from '../../base/db/db.ts';
import type { Sealing } from '../../base/http/sealing.ts';

export interface CloneTokens {
  /**
   * What a host shows at its hello. False where somebody with the same identity has gone on since: two hosts run from copies of one
   * disk, or the disk of one was set back. A value newer than any of ours is good: this database is from a backup.
   */
  show(machineId: string, shown: string | null): Promise<boolean>;
  /** A new value for it to store. */
  next(machineId: string): Promise<string>;
  /** It is on its disk: older ones are of a copy from now on. */
  kept(machineId: string, value: string): Promise<void>;
}

interface CloneTokensDeps {
  db: Db;
  sealing: Sealing;
  /** The enrolled key; a host that has enrolled anew begins anew. */
  machineKey(machineId: string): Promise<string | undefined>;
}

const CloneTokenRow = z.object({ public_key: text, issued: int, kept: int });

export function openCloneTokens({ db, sealing, machineKey }: CloneTokensDeps): CloneTokens {
  const placeOf = (machineId: string): string => `cloneToken/${machineId}`;
  /** Undefined for what is none of ours. */
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
