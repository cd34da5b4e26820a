// What operators see of payouts at a glance: those to send and to enter, and disputes that wait for a decision.
import { z } from 'zod';
import { dollarText } from '../../../shared/money.ts';
import { int, text } from '../../base/db/columns.ts';
import { sql } from '../../base/db/db.ts';
import type { Waits } from '../../base/http/overview.ts';
import { oldestDisputes } from './disputes.ts';
import { countOpen } from './store.ts';

const OldestRow = z.object({ id: text, created_ms: int });

const WORDS: Readonly<Record<string, string>> = {
  due: 'to be sent',
  in_flight: 'to be entered as paid or failed',
};

/** Payouts are sent together, so each state is one thing that waits. */
export const waitingPayouts: Waits = async (query) => {
  const open = await countOpen(query);
  return Promise.all(
    open.map(async ({ state, count, total_ucents: ucents }) => {
      const oldest = await query.one(
        OldestRow,
        sql`select id, created_ms from payouts where state = ${state} order by created_ms, id limit 1`,
      );
      return {
        kind: 'payout' as const,
        id: oldest?.id ?? state,
        what: `${count} payout${count === 1 ? ' is' : 's are'} ${WORDS[state] ?? state}, $${dollarText(ucents)} together.`,
        sinceMs: oldest?.created_ms ?? 0,
        command: `svc-control-plane admin payout list --state ${state}`,
      };
    }),
  );
};

export const waitingDisputes: Waits = async (query, { limit }) =>
  (await oldestDisputes(query, limit)).map(({ id, instance_id: instanceId, reason, opened_ms: sinceMs }) => ({
    kind: 'dispute',
    id,
    what: `The rental ${instanceId} is disputed: ${reason}`,
    sinceMs,
    command: `svc-control-plane admin dispute resolve ${id} <--release or --refund> --note <text>`,
  }));
