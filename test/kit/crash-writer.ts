// A program that a test kills: opens and closes paid requests without end, revokes keys meanwhile, and prints the id of each receipt and key
// that was acknowledged.
import { openAccountsAlone } from './accounts.ts';
import { openPostgres } from '../../control-plane/base/db/postgres.ts';
import { openSqlite } from '../../control-plane/base/db/sqlite.ts';
import { closeReceipt, openReceipt } from '../../control-plane/models/gateway/states.ts';
import { systemClock } from '../../shared/clock.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { systemRng } from '../../shared/rng.ts';
import { newReceipt, type Payer } from './payers.ts';

const CALLERS = 24;
export const CHARGED_UCENTS = 1_000n;

/** The database that the program writes to, and the organisations that pay. */
interface Order {
  database: string;
  payers: readonly Payer[];
}

async function main({ database, payers }: Order): Promise<void> {
  const [clock, rng] = [systemClock(), systemRng()];
  const ids = createIds(clock, rng);
  const log = createLog('test', 'silent');
  const db = database.startsWith('postgres:')
    ? openPostgres(database, { clock, rng, log })
    : openSqlite(database, { clock });
  const accounts = openAccountsAlone({ db, clock, ids });
  const caller = async (i: number): Promise<void> => {
    for (;;) {
      const payer = payers[i % payers.length];
      if (payer === undefined) throw new Error('there is no payer');
      const receipt = newReceipt(payer, {
        id: ids.prefixed('rcp'),
        held_ucents: 2n * CHARGED_UCENTS,
        opened_ms: clock.now(),
      });
      const opened = await db.hot(openReceipt(receipt));
      if (opened !== 'open') throw new Error(`a request was not opened: ${opened}`);
      const outcome = {
        charged_ucents: CHARGED_UCENTS,
        ending: 'completed' as const,
        prompt_tokens: 1,
        completion_tokens: 1,
        images: null,
        counted_by: 'upstream' as const,
        upstream: 'u',
      };
      await db.hot(closeReceipt(receipt, outcome, { nowMs: clock.now(), attempts: [] }));
      process.stdout.write(`${receipt.id}\n`);
    }
  };
  const revoke = async (): Promise<void> => {
    for (const { orgId } of payers) {
      const key = await accounts.createKey({ orgId, name: 'short', scopes: ['full_access'], expiresMs: null });
      await accounts.revokeKey(key.id);
      process.stdout.write(`${key.id} ${key.key}\n`);
    }
    return revoke();
  };
  await Promise.all([revoke(), ...Array.from({ length: CALLERS }, (_, i) => caller(i))]);
}

const [, , order] = process.argv;
if (import.meta.main && order !== undefined) await main(JSON.parse(order) as Order);
