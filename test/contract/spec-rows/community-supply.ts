// Specification 2.17 Community supply: its rules, in the order of its sentences, and their tests.
import type { RowsBySection } from '../spec-rows.ts';

export const COMMUNITY_SUPPLY_ROWS: RowsBySection = {
  '2.17': [
    [
      'CommunityMachine: gpu_count, gpu_type, region, price_per_hour and vram_per_gpu_gb may be null and are as declared',
      'contract/community.store.test.ts',
      'shows what was declared and how it stands, from its registration on',
    ],
    [
      'CommunityMachineRegistration: machine and enrollment_token',
      'contract/community.store.test.ts',
      'shows what was declared and how it stands, from its registration on',
    ],
    [
      'CommunityMachineDelistResult: status is delisted or draining',
      'contract/community.store.test.ts',
      'an occupied machine drains: its rental keeps running, and the end of that delists it',
    ],
    [
      'CommunitySupplier: supplier_id, org_id, status, created_at, updated_at',
      'contract/community.store.test.ts',
      'an organisation is no supplier until it says so, and active from then on',
    ],
    [
      'CommunityMachine: its fields, those that are optional as they were declared',
      'contract/community.store.test.ts',
      'shows what was declared and how it stands, from its registration on',
    ],
    [
      'CommunityMachine: last_heartbeat_at is the last sign of its agent',
      'contract/community.store.test.ts',
      'that is listed has no reason not to be on offer, and the time of its last sign',
    ],
    [
      'CommunityMachine: tier becomes the tier of its offerings',
      'control-plane/fleet/listing.store.test.ts',
      'of the tier takes it off the on-demand market, and back',
    ],
    [
      'Spec fields are self-declared and unverified; a host that contradicts them fails',
      'contract/community.store.test.ts',
      'whose host contradicts what was declared is failed and says why; declared fields stay as declared',
    ],
    [
      'The hash of the enrolment token is never serialized',
      'contract/community.store.test.ts',
      'shows what was declared and how it stands, from its registration on',
    ],
    [
      'CommunityMachineRegistration: the token is shown exactly once, and kept as a hash',
      'control-plane/fleet/supply.store.test.ts',
      'stores only the hash of the token',
    ],
    [
      'CommunityMachineDelistResult: machine_id and status',
      'contract/community.store.test.ts',
      'an idle machine is delisted at once and leaves supply; again is the same; listed again it is back',
    ],
    [
      'CommunityEarnings: accrued_cents over the lifetime, and entries that add up to it',
      'control-plane/money/payouts.store.test.ts',
      'earnings add up to the ledger in every paging and grouping, through rentals, dead hosts, outages and payouts',
    ],
    [
      'CommunityEarnings: unpaid_cents is what is owed',
      'contract/earnings.store.test.ts',
      'one payout covers the oldest entries, as far as it goes',
    ],
    [
      'Earnings entry: ledger_id, machine_id, instance_id, amount_cents, accrued_at, paid',
      'contract/earnings.store.test.ts',
      'a rental earns by the hour; the time of a dead host is taken back with its evidence; a payout settles all',
    ],
  ],
};
