// A program that a test kills: opens and closes paid requests without end, and prints the id of each that was acknowledged.
import { openPostgres } from '../../control-plane/base/db/postgres.ts';
import { openSqlite } from '../../control-plane/base/db/sqlite.ts';
import { closeReceipt, openReceipt } from '../../control-plane/models/gateway/states.ts';
import { openLedger } from '../../control-plane/money/ledger/ledger.ts';
import { systemClock } from '../../shared/clock.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { systemRng } from '../../shared/rng.ts';

const CALLERS = 24;
export const CHARGED_UCENTS = 1_000n;

/** Where the program writes, and the organisations that pay. */
interface Order {
  database: string;
  orgIds: readonly string[];
}

async function main({ database, orgIds }: Order): Promise<void> {
  const [clock, rng] = [systemClock(), systemRng()];
  const ids = createIds(clock, rng);
  const log = createLog('test', 'silent');
  const db = database.startsWith('postgres:')
    ? openPostgres(database, { clock, rng, log })
    : openSqlite(database, { clock });
  const ledger = openLedger({ clock });
  const caller = async (i: number): Promise<void> => {
    for (;;) {
      const receipt = {
        id: ids.prefixed('rcp'),
        org_id: orgIds[i % orgIds.length] ?? '',
        api_key_id: 'k',
        request_id: 'r',
        model_id: 'm',
        tier: 'serverless' as const,
        held_ucents: 2n * CHARGED_UCENTS,
        end_user: null,
        metadata: null,
        opened_ms: clock.now(),
      };
      if (!(await db.hot(openReceipt(receipt, ledger)))) throw new Error('the balance is too small');
      const outcome = {
        charged_ucents: CHARGED_UCENTS,
        ending: 'completed' as const,
        prompt_tokens: 1,
        completion_tokens: 1,
        images: null,
        counted_by: 'upstream' as const,
        upstream: 'u',
      };
      await db.hot(closeReceipt(receipt, outcome, { ledger, nowMs: clock.now(), attempts: [] }));
      process.stdout.write(`${receipt.id}\n`);
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, (_, i) => caller(i)));
}

const [, , order] = process.argv;
if (import.meta.main && order !== undefined) await main(JSON.parse(order) as Order);
