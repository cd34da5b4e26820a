// Running instances in bulk, as if each had been launched, metered and posted on time.
import { type Db, join, sql, type Sql } from '../../../control-plane/base/db/db.ts';
import { accountId, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { longHoldUcents, postableMs } from '../../../control-plane/money/metering/hours.ts';
import { holdId } from '../../../control-plane/money/metering/posting.ts';
import type { Segment } from '../../../control-plane/money/metering/store.ts';

export interface Fleet {
  instances: number;
  /** Each has as many of the instances as the others. */
  orgIds: readonly string[];
  /** The moment of the last tick: what was to be posted by then is posted. */
  tickedMs: number;
  /** How far the holds reach beyond the next posting. */
  aheadMs: number;
}

const MONEY_UCENTS = 10n ** 15n;
const RATE_UCENTS_PER_HOUR = 200_000_000n;
const SUPPLIERS = 1_000;
const STARTED_BEFORE_MS = 10 * 3_600_000;
/** Rows of one statement, and statements of one transaction. */
const PIECE = 250;

/** The organisations exist; their wallets are made here. */
export async function fill(db: Db, fleet: Fleet): Promise<void> {
  const held = new Map<string, bigint>();
  for (let from = 0; from < fleet.instances; from += PIECE) {
    const numbers = Array.from({ length: Math.min(PIECE, fleet.instances - from) }, (_, i) => from + i);
    const segments = numbers.map((number) => segmentOf(number, fleet));
    const holds = segments.map((segment) => ({ segment, ucents: longHoldUcents(segment, fleet.aheadMs) }));
    for (const { segment, ucents } of holds) held.set(segment.org_id, (held.get(segment.org_id) ?? 0n) + ucents);
    await db.tx('bench.fill', async (tx) => {
      if (from === 0) await tx.run(walletsOf(fleet));
      await tx.run(instancesOf(segments));
      await tx.run(segmentsOf(segments));
      await tx.run(holdsOf(holds));
    });
  }
  await db.tx('bench.held', async (tx) => {
    for (const [orgId, ucents] of held)
      await tx.run(sql`update ledger_accounts set held_ucents = ${ucents} where id = ${accountId(wallet(orgId))}`);
  });
}

function segmentOf(number: number, { orgIds, tickedMs }: Fleet): Segment {
  const startedMs = tickedMs - STARTED_BEFORE_MS - number;
  const segment = {
    id: `seg_${String(number).padStart(8, '0')}`,
    subject_id: `i-${number}`,
    org_id: orgIds[number % orgIds.length] ?? '',
    supplier_id: `s-${number % SUPPLIERS}`,
    machine_id: `m-${number}`,
    gpu_type: 'H100_SXM',
    gpu_count: 1,
    rate_ucents_per_hour: RATE_UCENTS_PER_HOUR,
    supplier_bps: 8_500,
    started_ms: startedMs,
    posted_through_ms: startedMs,
    ended_ms: null,
  };
  return { ...segment, posted_through_ms: postableMs(segment, tickedMs) };
}

function walletsOf({ orgIds }: Fleet): Sql {
  const rows = orgIds.map((orgId) => {
    const account = wallet(orgId);
    return sql`(${accountId(account)}, ${account.kind}, ${orgId}, 1, ${MONEY_UCENTS}, 1)`;
  });
  return sql`insert into ledger_accounts (id, kind, owner_id, prepaid, credits_ucents, created_ms) values ${join(rows)}`;
}

function instancesOf(segments: readonly Segment[]): Sql {
  const rows = segments.map(
    (segment) =>
      sql`(${segment.subject_id}, ${segment.org_id}, 'apk', 'running', '{}', '{}', ${segment.gpu_type}, 1, 'on_demand', 'eu',
        ${segment.rate_ucents_per_hour}, ${segment.machine_id}, ${segment.supplier_id}, '[]', 'op', ${segment.started_ms}, ${segment.started_ms})`,
  );
  return sql`insert into instances (id, org_id, api_key_id, status, request, launch, gpu_type, gpu_count, tier, region,
    price_ucents_per_hour, machine_id, supplier_id, tried_machine_ids, create_operation_id, created_ms, entered_ms) values ${join(rows)}`;
}

function segmentsOf(segments: readonly Segment[]): Sql {
  const rows = segments.map(
    (segment) =>
      sql`(${segment.id}, ${segment.subject_id}, ${segment.org_id}, ${segment.supplier_id}, ${segment.machine_id}, ${segment.gpu_type}, 1,
        ${segment.rate_ucents_per_hour}, ${segment.supplier_bps}, ${segment.started_ms}, ${segment.posted_through_ms})`,
  );
  return sql`insert into meter_segments (id, subject_id, org_id, supplier_id, machine_id, gpu_type, gpu_count, rate_ucents_per_hour,
    supplier_bps, started_ms, posted_through_ms) values ${join(rows)}`;
}

function holdsOf(holds: readonly { segment: Segment; ucents: bigint }[]): Sql {
  const rows = holds.map(
    ({ segment, ucents }) =>
      sql`(${holdId(segment.subject_id)}, ${accountId(wallet(segment.org_id))}, ${ucents}, ${segment.posted_through_ms})`,
  );
  return sql`insert into holds (id, account_id, amount_ucents, updated_ms) values ${join(rows)}`;
}
