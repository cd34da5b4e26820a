// Keeps the last lines of instances that end with their programs. A host removes a container soon after its end, and with it the log. Somebody who
// launched a program for the night reads what it printed in the morning.
import { promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { KEPT_LOG_DAYS, KEPT_LOGS_PER_ORG_MAX } from '../../../shared/api/instance-journal.ts';
import { LogLine } from '../../../shared/protocol/workload.ts';
import { text } from '../../base/db/columns.ts';
import { type Db, sql } from '../../base/db/db.ts';
import { inPieces, type Piece } from '../../base/db/pieces.ts';
import type { Sealing } from '../../base/http/sealing.ts';

export interface KeptLogs {
  /** Stores these lines, in place of those that were stored before. The oldest logs of an organisation that has too many are removed. */
  keep(own: { orgId: string; instanceId: string }, lines: readonly LogLine[]): Promise<void>;
  /** Oldest first; undefined if nothing was kept. */
  find(instanceId: string): Promise<LogLine[] | undefined>;
  /** Removes logs whose time is over. Resolves with their number. */
  forget(signal: AbortSignal): Promise<number>;
}

const KEPT_MS = KEPT_LOG_DAYS * 86_400_000;

const KeptRow = z.object({ sealed_lines: text });

export function openKeptLogs({ db, clock, sealing }: { db: Db; clock: Clock; sealing: Sealing }): KeptLogs {
  return {
    keep: async ({ orgId, instanceId }, lines) => {
      const sealed = sealing.seal(placeOf(instanceId), await packed(lines));
      const nowMs = clock.now();
      await db.tx('journal.keep_log', async (tx) => {
        await tx.lock('instance', instanceId);
        await tx.run(
          sql`insert into kept_logs (instance_id, org_id, sealed_lines, kept_ms) values (${instanceId}, ${orgId}, ${sealed}, ${nowMs})
              on conflict (instance_id) do update set sealed_lines = excluded.sealed_lines, kept_ms = excluded.kept_ms`,
        );
        await tx.run(
          sql`delete from kept_logs where org_id = ${orgId} and kept_ms <= (select kept_ms from kept_logs where org_id = ${orgId}
                order by kept_ms desc limit 1 offset ${KEPT_LOGS_PER_ORG_MAX})`,
        );
      });
    },
    find: async (instanceId) => {
      const row = await db.read.one(KeptRow, sql`select sealed_lines from kept_logs where instance_id = ${instanceId}`);
      return row && unpacked(sealing.open(placeOf(instanceId), row.sealed_lines));
    },
    forget: (signal) => inPieces(clock.now() - KEPT_MS, (piece) => forgetOld(db, piece), signal),
  };
}

function forgetOld(db: Db, { untilMs, limit }: Piece): Promise<number> {
  const old = sql`select instance_id from kept_logs where kept_ms <= ${untilMs} order by kept_ms limit ${limit}`;
  return db.tx('journal.forget_logs', (tx) => tx.run(sql`delete from kept_logs where instance_id in (${old})`));
}

const placeOf = (instanceId: string): string => `kept log ${instanceId}`;

/** Lines of a program are alike, so they need a tenth of their space. Many programs may end at once, so that is done outside of the event loop. */
async function packed(lines: readonly LogLine[]): Promise<string> {
  return (await promisify(gzip)(JSON.stringify(lines))).toString('base64');
}

async function unpacked(text: string): Promise<LogLine[]> {
  const json = await promisify(gunzip)(Buffer.from(text, 'base64'));
  return z.array(LogLine).parse(JSON.parse(json.toString('utf8')));
}
