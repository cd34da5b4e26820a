// Community supply as suppliers see it, with what they earned (specification 2.17).
import { z } from 'zod';
import { GPUS_PER_MACHINE_MAX } from '../limits.ts';
import { pageParameters } from './page.ts';

export const CommunitySupplier = z
  .strictObject({
    supplier_id: z.uuid().describe('Identifies the supplier'),
    org_id: z.string().describe('The organisation that supplies'),
    status: z
      .enum(['active', 'suspended'])
      .describe('suspended: none of its machines is on offer, and it cannot register more'),
    created_at: z.iso.datetime().describe('Since when it is a supplier'),
    updated_at: z.iso.datetime().describe('Last change'),
  })
  .meta({ id: 'CommunitySupplier' });
export type CommunitySupplier = z.infer<typeof CommunitySupplier>;

const region = z.string().min(1).max(64);
const pricePerHour = z.number().positive().max(1000);
const gpuType = z.string().min(1).max(64);
const gpuCount = z.int().min(1).max(GPUS_PER_MACHINE_MAX);
const vramPerGpuGb = z.int().min(1).max(1024);
const tier = z.enum(['on_demand', 'spot']);

/**
 * Body of POST /v1/community/machines. The supplier's statements are not trusted: what is offered comes from the inventory that the host
 * reports.
 */
export const RegisterMachine = z
  .strictObject({
    region: region.describe('Where it stands, e.g. eu-west'),
    price_per_hour: pricePerHour.describe('Retail price of one GPU in dollars an hour'),
    gpu_type: gpuType.optional().describe('Declared, not believed'),
    gpu_count: gpuCount.optional().describe('Declared, not believed'),
    vram_per_gpu_gb: vramPerGpuGb.optional().describe('Declared, not believed'),
    tier: tier.default('on_demand').describe('Tier of its offerings'),
  })
  .meta({ id: 'RegisterMachine' });
export type RegisterMachine = z.infer<typeof RegisterMachine>;

/** Body of PATCH /v1/community/machines/{id}. */
export const ChangeMachine = z
  .strictObject({
    price_per_hour: pricePerHour.optional().describe('For rentals from now on; those that run keep theirs'),
    region: region.optional().describe('Only while none of its GPUs is rented or reserved'),
    tier: tier.optional().describe('For rentals from now on'),
    gpu_type: gpuType.nullable().optional().describe('Declared anew; null takes it back'),
    gpu_count: gpuCount.nullable().optional().describe('Declared anew; null takes it back'),
    vram_per_gpu_gb: vramPerGpuGb.nullable().optional().describe('Declared anew; null takes it back'),
  })
  .refine((change) => Object.keys(change).length > 0, 'must name at least one field')
  .meta({ id: 'ChangeMachine' });
export type ChangeMachine = z.infer<typeof ChangeMachine>;

const share = z.number().min(0).max(1).nullable();

/** How a machine did in the last 30 UTC days, today included. */
export const MachineReliability = z
  .strictObject({
    since: z.iso
      .datetime()
      .nullable()
      .describe(
        'Since when uptime and rented count: its first link, or the begin of the 30 days; null before the first',
      ),
    uptime: share.describe(
      'Share of that time in which its agent was connected, from 0 to 1. Time in which we were away counts as before it',
    ),
    launches: z.int().min(0).describe('Launches of the 30 days that it brought to run or failed'),
    failed_launches: z
      .int()
      .min(0)
      .describe('Of these, the ones that it failed, so that another machine was tried. Wrong images do not count'),
    failed_launch_share: share.describe('failed_launches / launches; null without launches'),
    rented: share.describe('Share of the time of all its GPUs that customers paid for as rentals; null without GPUs'),
  })
  .meta({ id: 'MachineReliability' });
export type MachineReliability = z.infer<typeof MachineReliability>;

export const CommunityMachine = z
  .strictObject({
    machine_id: z.uuid().describe('Identifies the machine'),
    supplier_id: z.uuid().describe('Whose machine it is'),
    status: z
      .enum(['pending_verification', 'listed', 'draining', 'delisted', 'suspended'])
      .describe(
        'pending_verification: waits for the operator; listed: on offer, unless status_reason says why not; draining: delisted, while a rental on it goes on; suspended: by the operator',
      ),
    status_reason: z.string().nullable().describe('Why none of its GPUs is on offer; null while the free ones are'),
    verification_status: z
      .enum(['unverified', 'verified', 'failed'])
      .describe(
        'failed: the host contradicts what was declared; unverified: nothing contradicts it, but only the host has counted. There is no check yet that would make a machine verified',
      ),
    verification_detail: z.string().nullable().describe('What is contradicted, or why the GPUs cannot be counted'),
    gpu_faults: z
      .array(
        z.strictObject({
          gpu_uuid: z.string().describe('The GPU'),
          severity: z
            .enum(['broken', 'unfit'])
            .describe('broken: nothing computes on it until it is reset; unfit: only those who have it already use it'),
          detail: z.string().describe('What the host has found'),
        }),
      )
      .describe('GPUs that are not on offer until the host is reset, and why; the others are'),
    created_at: z.iso.datetime().describe('When it was registered'),
    gpu_count: z.int().nullable().describe('As declared'),
    gpu_type: z.string().nullable().describe('As declared'),
    region: z.string().nullable().describe('Where it stands, as declared'),
    price_per_hour: z.number().nullable().describe('Retail price of one GPU in dollars an hour'),
    platform_fee_percent: z
      .number()
      .min(0)
      .max(100)
      .describe('The part of what customers pay that the service keeps, in per cent; for rentals from now on'),
    vram_per_gpu_gb: z.int().nullable().describe('As declared'),
    tier: tier.describe('Tier of its offerings'),
    online: z.boolean().describe('Whether its agent is connected now'),
    reported_gpus: z
      .array(
        z.strictObject({
          gpu_type: z.string().describe('Canonical GPU type'),
          vram_per_gpu_gb: z.int().describe('VRAM of one of them'),
          count: z.int().describe('How many there are'),
          rented: z.int().describe('How many of them a rental has now'),
          reserved: z.int().describe('How many of the others are set aside for a contract'),
        }),
      )
      .describe('The GPUs that its host reports; none before it has enrolled'),
    earned_today_cents: z
      .int()
      .describe(
        'Earned since midnight UTC, in whole cents, as far as it is posted: within half an hour after the end of each hour, and at the end of each rental',
      ),
    reliability: MachineReliability.describe('How it did in the last 30 days'),
    last_heartbeat_at: z.iso
      .datetime()
      .nullable()
      .describe(
        'Last sign of its agent; at most 10 minutes behind while the agent is connected; null before the first',
      ),
  })
  .meta({ id: 'CommunityMachine' });
export type CommunityMachine = z.infer<typeof CommunityMachine>;

const MACHINE_CHECKS = [
  'supplier',
  'listing',
  'enrolment',
  'verification',
  'approval',
  'connection',
  'identity',
  'containers',
  'engine',
  'driver',
  'fence',
  'container_toolkit',
  'gpus',
  'tier',
  'disk',
  'rentals',
] as const;

export const MachineCheck = z
  .strictObject({
    name: z.enum(MACHINE_CHECKS).describe('What is checked'),
    state: z
      .enum(['passed', 'failed', 'waiting'])
      .describe('waiting: for the host, or for the operator; failed: for you, if there is a remedy'),
    required: z.boolean().describe('Nothing of the machine is on offer before it has passed'),
    evidence: z.string().describe('What is known, and from whom'),
    remedy: z.string().nullable().describe('What to do; null if it has passed'),
  })
  .meta({ id: 'MachineCheck' });
export type MachineCheck = z.infer<typeof MachineCheck>;

export const MachineChecklist = z
  .strictObject({
    machine_id: z.uuid().describe('The machine'),
    on_offer: z.boolean().describe('All required checks have passed: its free GPUs are on offer'),
    checks: z.array(MachineCheck).describe('In the order in which they decide'),
  })
  .meta({ id: 'MachineChecklist' });
export type MachineChecklist = z.infer<typeof MachineChecklist>;

export const CommunityMachineRegistration = z
  .strictObject({
    machine: CommunityMachine.describe('The machine'),
    enrollment_token: z.string().describe('Shown exactly once; lives 24 hours'),
  })
  .meta({ id: 'CommunityMachineRegistration' });

export const CommunityMachineDelistResult = z
  .strictObject({
    machine_id: z.uuid().describe('The machine'),
    status: z
      .enum(['draining', 'delisted'])
      .describe('draining: a rental on it goes on, and it is delisted when the last GPU is released'),
  })
  .meta({ id: 'CommunityMachineDelistResult' });
export type CommunityMachineDelistResult = z.infer<typeof CommunityMachineDelistResult>;

export const EarningsEntry = z
  .strictObject({
    ledger_id: z.uuid().describe('Identifies the entry'),
    machine_id: z.uuid().describe('The machine that earned it'),
    instance_id: z.string().describe('The rental that it is about'),
    amount_cents: z
      .int()
      .describe(
        'Negative where earnings were taken back. Fractions of a cent count with a later entry: the sum is exact',
      ),
    amount: z.string().describe('Exactly, in dollars'),
    reason: z
      .string()
      .nullable()
      .describe(
        'Why earnings were taken back (the failed probes of a dead host), or paid for time in which we were away',
      ),
    accrued_at: z.iso.datetime().describe('When it was entered'),
    payable_at: z.iso
      .datetime()
      .nullable()
      .describe('From then on it can be paid out. Null while the customer of the rental disputes it'),
    paid: z
      .boolean()
      .describe(
        'Nothing of it is owed any more: payouts cover it, or it was taken back. Payouts cover the oldest entries first',
      ),
  })
  .meta({ id: 'EarningsEntry' });
export type EarningsEntry = z.infer<typeof EarningsEntry>;

export const EarningsQuery = z.strictObject({
  ...pageParameters,
  machine_id: z
    .string()
    .min(1)
    .optional()
    .describe(
      'Only the entries of this machine. A page may then have fewer entries than `limit`, or none, although there is a next one',
    ),
});

const outage = {
  outage_id: z.string().describe('Identifies the outage'),
  cause: z
    .enum(['outage', 'gpu_fault'])
    .describe('outage: rentals could not be reached from outside. gpu_fault: the host reported a broken GPU'),
  confirmed_at: z.iso.datetime().describe('When it was certain'),
  from: z.iso.datetime().describe('From then on the first of its rentals is not charged'),
  until: z.iso
    .datetime()
    .nullable()
    .describe('When the last of its rentals was charged again or ended; null while it lasts'),
  rentals: z.int().describe('How many rentals were not charged'),
  not_earned: z
    .string()
    .describe(
      'Your part of what this time would have cost, exactly, in dollars; while it lasts, until now. If the operator refuses a credit, you are paid that part',
    ),
  reason: z.string().describe('What the probes from outside or the host reported'),
};
export const MachineOutage = z.strictObject(outage).meta({ id: 'MachineOutage' });
export type MachineOutage = z.infer<typeof MachineOutage>;

const charged = {
  from: z.iso.datetime().describe('When the charge begins'),
  until: z.iso.datetime().nullable().describe('When it ends; null while it lasts'),
};
export const MachineRental = z
  .strictObject({
    rental_id: z.string().describe('Identifies this use of the machine'),
    instance_id: z.string().describe('The instance or fine-tuning job, as in the entries of your earnings'),
    gpu_uuids: z.array(z.string()).describe('The GPUs that it held, as nvidia-smi names them'),
    from: z.iso.datetime().describe('When it was placed on the machine'),
    until: z.iso.datetime().nullable().describe('When the host had removed all of it; null before'),
    charged: z
      .array(z.strictObject(charged))
      .describe(
        'The parts of that time that were charged, oldest first. A refund that comes later does not change them. A job is charged at its checkpoints, so what it has trained since then may still turn out to be free',
      ),
  })
  .meta({ id: 'MachineRental' });
export type MachineRental = z.infer<typeof MachineRental>;

const probeCounts = {
  good: z.int().describe('Logins that succeeded'),
  failed: z.int().describe('Logins that did not. Two in a row that are not repaired are an outage'),
};
export const MachineProbes = z
  .strictObject({
    machine_id: z.string().describe('The machine'),
    ...probeCounts,
    hours: z
      .array(z.strictObject({ hour: z.iso.datetime().describe('The start of the hour'), ...probeCounts }))
      .describe('The hours of the last day in which the machine was rented, oldest first'),
  })
  .meta({ id: 'MachineProbes' });
export type MachineProbes = z.infer<typeof MachineProbes>;

export const CommunityEarnings = z
  .strictObject({
    accrued_cents: z.int().describe('Earned over the whole life of the supplier, less what was taken back'),
    unpaid_cents: z
      .int()
      .describe('Of that, not paid out yet. Negative where earnings were taken back that had been paid'),
    payable_cents: z
      .int()
      .describe('Of what is unpaid, what can be paid out now: old enough, and not disputed by the customer'),
    of_machine: z
      .strictObject({
        machine_id: z.string().describe('The machine that was asked for'),
        accrued: z
          .string()
          .describe('What it earned over its whole life, less what was taken back, exactly, in dollars'),
      })
      .nullable()
      .describe('With machine_id: what this machine alone earned. The exact amounts of all its entries add up to it'),
    entries: z
      .array(EarningsEntry)
      .describe('The entries of this page, newest first; all of them add up to accrued_cents'),
    next_cursor: z.string().nullable().describe('Null when no further page exists'),
  })
  .meta({ id: 'CommunityEarnings' });
export type CommunityEarnings = z.infer<typeof CommunityEarnings>;
