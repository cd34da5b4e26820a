// What operators see of payouts at a glance: those to send and to enter, and disputes that wait for a decision.
import { z } from 'zod';
import { dollarText } from '../../../shared/money.ts';
import { int, text, ucents } from '../../base/db/columns.ts';
import { sql } from '../../base/db/db.ts';
import type { Waits } from '../../base/http/overview.ts';
import { oldestDisputes } from './disputes.ts';

const OpenRow = z.object({
  state: z.enum(['due', 'in_flight']),
  batch: text.nullable(),
  first_id: text,
  count: int,
  total_ucents: ucents,
  since_ms: int,
});

const WORDS = { due: 'to be sent', in_flight: 'to be entered as paid or failed' } as const;

/**
 * Payouts are sent together, so those that are due are one thing that waits, and so are those of each batch. An operator finds here the name of a
 * batch whose export was cut off, with which it is repeated.
 */
export const waitingPayouts: Waits = async (query, { limit }) => {
  const open = await query.all(
    OpenRow,
    sql`select state, batch, min(id) as first_id, count(*) as count, cast(sum(amount_ucents) as bigint) as total_ucents,
          min(created_ms) as since_ms
        from payouts where state in ('due', 'in_flight') group by state, batch order by since_ms, first_id limit ${limit}`,
  );
  return open.map(({ state, batch, first_id: firstId, count, total_ucents: ucents, since_ms: sinceMs }) => {
    const payouts = `${count} payout${count === 1 ? '' : 's'}${batch === null ? '' : ` of the batch "${batch}"`}`;
    return {
      kind: 'payout' as const,
      id: batch ?? firstId,
      what: `${payouts} ${count === 1 ? 'is' : 'are'} ${WORDS[state]}, $${dollarText(ucents)} together.`,
      sinceMs,
      command: `svc-control-plane admin payout list --state ${state}`,
    };
  });
};

export const waitingDisputes: Waits = async (query, { limit }) =>
  (await oldestDisputes(query, limit)).map(({ id, instance_id: instanceId, reason, opened_ms: sinceMs }) => ({
    kind: 'dispute',
    id,
    what: `The rental ${instanceId} is disputed: ${reason}`,
    sinceMs,
    command: `svc-control-plane admin dispute resolve ${id} <--release or --refund> --note <text>`,
  }));
