// What waits for a decision of the operator, in an operator's words: disputes, credits and payments above a bound.
import { isoTime } from '../shared/clock.ts';
import { dollarText } from '../shared/money.ts';
import type { CreditCommands } from './admin/credit-routes.ts';
import type { DisputeCommands } from './admin/dispute-routes.ts';
import type { Fields } from './admin/fields.ts';
import type { CreditFlag, HeldCredit } from './money/credits/store.ts';
import type { Dispute } from './money/payouts/disputes.ts';
import type { Rooms } from './rooms.ts';

export function disputeCommands({ payouts: { disputes } }: Rooms): DisputeCommands {
  return {
    open: async (dispute) => disputeFields(await disputes.open(dispute)),
    resolve: async (id, resolution) => disputeFields(await disputes.resolve(id, resolution)),
    list: async () => (await disputes.list()).map(disputeFields),
  };
}

export function creditCommands({ credits }: Rooms): CreditCommands {
  return {
    list: async () => (await credits.list()).map(creditFields),
    release: async (id, note) => creditFields(await credits.release(id, note)),
    refuse: async (id, note) => creditFields(await credits.refuse(id, note)),
    flags: async () => (await credits.flags()).map(flagFields),
    trust: async (orgId, note) => flagFields(await credits.trust(orgId, note)),
  };
}

function disputeFields(row: Dispute): Fields {
  return {
    dispute_id: row.id,
    instance_id: row.instance_id,
    state: row.state,
    since: row.since_ms === 0 ? null : isoTime(row.since_ms),
    reason: row.reason,
    refunded: dollarText(row.refunded_ucents),
    note: row.note,
    opened_at: isoTime(row.opened_ms),
    resolved_at: row.resolved_ms === null ? null : isoTime(row.resolved_ms),
  };
}

function creditFields(row: HeldCredit): Fields {
  return {
    credit_id: row.id,
    state: row.state,
    kind: row.kind,
    because: row.why,
    dollars: dollarText(row.amount_ucents),
    org_id: row.org_id,
    supplier_id: row.supplier_id,
    instance_id: row.subject_id,
    cause: row.cause,
    from: isoTime(row.from_ms),
    until: isoTime(row.until_ms),
    evidence: row.evidence,
    note: row.note,
    decided_at: row.decided_ms === null ? null : isoTime(row.decided_ms),
  };
}

function flagFields(row: CreditFlag): Fields {
  return {
    org_id: row.org_id,
    flagged_at: row.flagged_ms === null ? null : isoTime(row.flagged_ms),
    trusted_at: row.trusted_ms === null ? null : isoTime(row.trusted_ms),
    detail: row.detail,
  };
}
