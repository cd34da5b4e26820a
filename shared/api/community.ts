// Community supply as suppliers see it, with what they earned (specification 2.17).
import { z } from 'zod';
import { GPUS_PER_MACHINE_MAX } from '../limits.ts';
import { label } from './label.ts';
import { pageParameters } from './page.ts';

export const CommunitySupplier = z
  .strictObject({
    supplier_id: z.uuid().describe('Identifies the supplier'),
    org_id: z.string().describe('The organisation that supplies'),
    status: z
      .enum(['active', 'suspended'])
      .describe('suspended: none of its machines is on offer, and it cannot register more'),
    created_at: z.iso.datetime().describe('When the organisation became a supplier'),
    updated_at: z.iso.datetime().describe('Last change'),
  })
  .meta({ id: 'CommunitySupplier' });
export type CommunitySupplier = z.infer<typeof CommunitySupplier>;

/** What a supplier calls a machine. Several may have the same name. */
export const MachineName = label(100);
const region = label(64);
const pricePerHour = z.number().positive().max(1000);
const gpuType = label(64);
const gpuCount = z.int().min(1).max(GPUS_PER_MACHINE_MAX);
const vramPerGpuGb = z.int().min(1).max(1024);
const tier = z.enum(['on_demand', 'spot']);

/**
 * Body of POST /v1/community/machines. The supplier's statements are not trusted: what is offered comes from the inventory that the host
 * reports.
 */
export const RegisterMachine = z
  .strictObject({
    name: MachineName.optional().describe('A name of your own. Customers do not see it'),
    region: region.describe('Where it stands, e.g. eu-west'),
    price_per_hour: pricePerHour.describe('Retail price of one GPU in dollars an hour'),
    gpu_type: gpuType
      .optional()
      .describe('GPU type that you declare. What is offered comes from the report of the host'),
    gpu_count: gpuCount
      .optional()
      .describe('Number of GPUs that you declare. What is offered comes from the report of the host'),
    vram_per_gpu_gb: vramPerGpuGb
      .optional()
      .describe('VRAM of one GPU in GB that you declare. What is offered comes from the report of the host'),
    tier: tier.default('on_demand').describe('Tier of the offerings of the machine'),
  })
  .meta({ id: 'RegisterMachine' });
export type RegisterMachine = z.infer<typeof RegisterMachine>;

/** Body of PATCH /v1/community/machines/{id}. */
export const ChangeMachine = z
  .strictObject({
    name: MachineName.nullable().optional().describe('The new name; null removes it'),
    price_per_hour: pricePerHour
      .optional()
      .describe(
        'New retail price of one GPU in dollars an hour, for rentals that begin from now on. Running rentals keep their price',
      ),
    region: region
      .optional()
      .describe('New region. It can be changed only while no GPU of the machine is rented or reserved'),
    tier: tier.optional().describe('New tier, for rentals that begin from now on'),
    rentable_until: z.iso
      .datetime({ offset: true })
      .nullable()
      .optional()
      .describe(
        'Time from which the machine is not on offer any more; it must be in the future. Until then only launches that end by themselves before it are placed on the machine. Running rentals go on, and their customers are told. Null: the machine is offered without an end',
      ),
    gpu_type: gpuType.nullable().optional().describe('New declared GPU type. Null withdraws the declaration'),
    gpu_count: gpuCount.nullable().optional().describe('New declared number of GPUs. Null withdraws the declaration'),
    vram_per_gpu_gb: vramPerGpuGb
      .nullable()
      .optional()
      .describe('New declared VRAM of one GPU in GB. Null withdraws the declaration'),
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
        'Time from which `uptime` and `rented` are counted: the first connection of the agent, or the start of the 30 days if that is later. Null before the first connection',
      ),
    uptime: share.describe(
      'Share of the time since `since` in which the agent was connected, from 0 to 1. If this service was down, a machine that was connected before counts as connected. Null before the first connection',
    ),
    launches: z
      .int()
      .min(0)
      .describe('Number of launches in the 30 days that ran on the machine or that the machine failed'),
    failed_launches: z
      .int()
      .min(0)
      .describe(
        'Number of these launches that the machine failed, so that another machine was tried. Launches with a wrong image do not count',
      ),
    failed_launch_share: share.describe('failed_launches / launches; null without launches'),
    rented: share.describe(
      'Share of the time of all GPUs of the machine for which customers paid as rentals. Null if the machine has no GPUs, and before the first connection',
    ),
  })
  .meta({ id: 'MachineReliability' });
export type MachineReliability = z.infer<typeof MachineReliability>;

export const CommunityMachine = z
  .strictObject({
    machine_id: z.uuid().describe('Identifies the machine'),
    supplier_id: z.uuid().describe('Whose machine it is'),
    name: z.string().nullable().describe('A name of your own; null if it has none'),
    hostname: z.string().nullable().describe('The name that its host reports. Null before the host has enrolled'),
    status: z
      .enum(['pending_verification', 'listed', 'delisted', 'suspended'])
      .describe(
        'pending_verification: the machine waits for the operator. listed: the machine is on offer, unless `status_reason` says why not. delisted: the machine was taken out of supply; while a rental on it goes on, `status_reason` says so. suspended: the operator took the machine out of supply',
      ),
    status_reason: z
      .string()
      .nullable()
      .describe('Why no GPU of the machine is on offer. Null while its free GPUs are on offer'),
    on_offer: z.boolean().describe('Whether its free GPUs are on offer. `status_reason` says why not'),
    verification_status: z
      .enum(['unverified', 'verified', 'failed'])
      .describe(
        'failed: the report of the host contradicts your declaration. unverified: nothing contradicts your declaration, but only the host itself has counted the GPUs. verified: there is no check yet that makes a machine verified',
      ),
    verification_detail: z.string().nullable().describe('What is contradicted, or why the GPUs cannot be counted'),
    gpu_faults: z
      .array(
        z.strictObject({
          gpu_uuid: z.string().describe('The GPU'),
          severity: z
            .enum(['broken', 'unfit'])
            .describe(
              'broken: nothing can compute on the GPU until it is reset. unfit: only rentals that have the GPU already may use it',
            ),
          detail: z.string().describe('What the host has found'),
        }),
      )
      .describe(
        'GPUs that are not on offer until the host is reset or repaired, and why. The other GPUs are not affected',
      ),
    created_at: z.iso.datetime().describe('When it was registered'),
    gpu_count: z.int().nullable().describe('Declared number of GPUs. Null if it was not declared'),
    gpu_type: z.string().nullable().describe('Declared GPU type. Null if it was not declared'),
    region: z.string().nullable().describe('Where it stands, as declared'),
    price_per_hour: z.number().nullable().describe('Retail price of one GPU in dollars an hour'),
    platform_fee_percent: z
      .number()
      .min(0)
      .max(100)
      .describe('The percentage of the customer price that the service keeps, for rentals that begin from now on'),
    vram_per_gpu_gb: z.int().nullable().describe('Declared VRAM of one GPU, in GB. Null if it was not declared'),
    tier: tier.describe('Tier of the offerings of the machine'),
    rentable_until: z.iso
      .datetime()
      .nullable()
      .describe('Time from which the machine is not on offer any more; null if you have set none'),
    online: z.boolean().describe('Whether its agent is connected now'),
    reported_gpus: z
      .array(
        z.strictObject({
          gpu_type: z.string().describe('Canonical GPU type'),
          vram_per_gpu_gb: z.int().describe('VRAM of one GPU, in GB'),
          count: z.int().describe('How many there are'),
          rented: z.int().describe('Number of these GPUs that are rented now'),
          reserved: z.int().describe('Number of these GPUs that are not rented, but set aside for a contract'),
        }),
      )
      .describe('The GPUs that its host reports; none before it has enrolled'),
    earned_today_cents: z
      .int()
      .describe(
        'Earnings since midnight UTC that are posted already, in whole cents. Earnings are posted within half an hour after the end of each hour, and at the end of each rental',
      ),
    reliability: MachineReliability.describe('How it did in the last 30 days'),
    last_heartbeat_at: z.iso
      .datetime()
      .nullable()
      .describe(
        'Time of the last message from the agent. While the agent is connected, it may be up to 10 minutes old. Null before the first message',
      ),
  })
  .meta({ id: 'CommunityMachine' });
export type CommunityMachine = z.infer<typeof CommunityMachine>;

const MACHINE_CHECKS = [
  'supplier',
  'listing',
  'rentable_until',
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
      .describe(
        'waiting: the host must report first, or the operator must act. failed: the check has failed, and `remedy` says what to do',
      ),
    required: z.boolean().describe('True if no GPU of the machine is on offer until the check has passed'),
    evidence: z.string().describe('The facts on which the state is based, and where they come from'),
    remedy: z.string().nullable().describe('What to do; null if it has passed'),
  })
  .meta({ id: 'MachineCheck' });
export type MachineCheck = z.infer<typeof MachineCheck>;

export const MachineChecklist = z
  .strictObject({
    machine_id: z.uuid().describe('The machine'),
    on_offer: z.boolean().describe('All required checks have passed: its free GPUs are on offer'),
    checks: z.array(MachineCheck).describe('The checks, in the order in which they decide'),
  })
  .meta({ id: 'MachineChecklist' });
export type MachineChecklist = z.infer<typeof MachineChecklist>;

export const CommunityMachineRegistration = z
  .strictObject({
    machine: CommunityMachine.describe('The machine'),
    enrollment_token: z
      .string()
      .describe('Token with which the host enrols. It is shown exactly once and is valid for 24 hours'),
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
        'Amount in whole cents. Negative if earnings were taken back. Fractions of a cent are added to a later entry, so the sum of all entries is exact',
      ),
    amount: z.string().describe('The exact amount, in dollars'),
    reason: z
      .string()
      .nullable()
      .describe(
        'Why earnings were taken back (the failed probes of a dead host), or why they were paid for time in which this service was down. Null for all other entries',
      ),
    accrued_at: z.iso.datetime().describe('When it was entered'),
    payable_at: z.iso
      .datetime()
      .nullable()
      .describe(
        'Time from which the amount can be paid out. Null while the customer of the rental disputes the time of this entry',
      ),
    paid: z
      .boolean()
      .describe(
        'True if nothing of this entry is owed any more, because payouts cover it or because it was taken back. Payouts cover the oldest entries first',
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
  confirmed_at: z.iso.datetime().describe('When the outage was confirmed'),
  from: z.iso.datetime().describe('Time from which the first affected rental was not charged'),
  until: z.iso
    .datetime()
    .nullable()
    .describe('When the last affected rental was charged again or ended. Null while the outage lasts'),
  rentals: z.int().describe('How many rentals were not charged'),
  not_earned: z
    .string()
    .describe(
      'Your share of what customers would have paid for this time, exactly, in dollars. While the outage lasts, this counts until now. If the operator refuses a credit to a customer, you are paid your share of that credit',
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
    instance_id: z.string().describe('Id of the instance or fine-tuning job, as in the entries of your earnings'),
    gpu_uuids: z.array(z.string()).describe('The GPUs that it held, as nvidia-smi names them'),
    from: z.iso.datetime().describe('When it was placed on the machine'),
    until: z.iso.datetime().nullable().describe('When the host had removed all of it; null before'),
    charged: z
      .array(z.strictObject(charged))
      .describe(
        'The parts of the time of the rental that were charged, oldest first. A later refund does not change them. A fine-tuning job is charged at its checkpoints, so the time since its last checkpoint may still become free',
      ),
  })
  .meta({ id: 'MachineRental' });
export type MachineRental = z.infer<typeof MachineRental>;

const probeCounts = {
  good: z.int().describe('Number of SSH logins that succeeded'),
  failed: z
    .int()
    .describe(
      'Number of SSH logins that failed. What makes an outage of failures is in the manual, under "What decides about billing"',
    ),
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
    accrued_cents: z.int().describe('All earnings of the supplier since the beginning, minus what was taken back'),
    unpaid_cents: z
      .int()
      .describe(
        'The part of `accrued_cents` that is not paid out yet. Negative if earnings were taken back after they had been paid',
      ),
    payable_cents: z
      .int()
      .describe(
        'The part of `unpaid_cents` that can be paid out now. It is old enough, and no open dispute can take it back. What a dispute can take back and was paid out already is missing here too',
      ),
    of_machine: z
      .strictObject({
        machine_id: z.string().describe('The machine that was asked for'),
        accrued: z
          .string()
          .describe('All earnings of the machine since the beginning, minus what was taken back, exactly, in dollars'),
      })
      .nullable()
      .describe(
        'The earnings of the machine that `machine_id` names. The exact amounts of all its entries add up to `accrued`. Null if the request has no `machine_id`',
      ),
    entries: z
      .array(EarningsEntry)
      .describe('The entries of this page, newest first; all of them add up to accrued_cents'),
    next_cursor: z.string().nullable().describe('Null when no further page exists'),
  })
  .meta({ id: 'CommunityEarnings' });
export type CommunityEarnings = z.infer<typeof CommunityEarnings>;
