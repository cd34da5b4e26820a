// The reservation contract as customers see it (specification 2.7), and the request with which an operator makes one.
import { z } from 'zod';

export const RenewalMode = z.enum(['auto_renew', 'manual', 'none']);
export type RenewalMode = z.infer<typeof RenewalMode>;

const COMMITMENTS_MAX = 32;
const GPUS_MAX = 10_000;

const CommitmentEntry = z.strictObject({
  gpu_type: z.string().min(1).max(64).describe('Canonical GPU type'),
  gpu_count: z.int().min(1).max(GPUS_MAX).describe('GPUs of this type that the contract commits'),
  region: z.string().min(1).max(64).describe('The region of these GPUs'),
});
/** Entries of one contract; one entry for each type and region. */
export const Commitment = z
  .array(CommitmentEntry)
  .min(1)
  .max(COMMITMENTS_MAX)
  .refine(
    (entries) => new Set(entries.map(({ gpu_type, region }) => `${gpu_type}@${region}`)).size === entries.length,
    'must name each GPU type once per region',
  );
export type Commitment = z.infer<typeof Commitment>;

/** The request of an operator for a new contract. */
export const NewReservation = z.strictObject({
  org_id: z.string(),
  title: z.string().trim().min(1).max(128),
  starts_at: z.iso.datetime({ offset: true }),
  ends_at: z.iso.datetime({ offset: true }),
  renewal: RenewalMode,
  commitment: Commitment,
});
export type NewReservation = z.infer<typeof NewReservation>;

const ReservedInstance = z.strictObject({
  instance_id: z.string().describe('The same as in GET /v1/instances'),
  hostname: z.string().nullable().describe('Host name of its SSH endpoint; null before it has one'),
  gpu_count: z.int().describe('Number of GPUs of the contract that the instance uses'),
  status: z
    .enum(['allocating', 'booting', 'running', 'unreachable', 'stopping', 'error'])
    .describe('The status as in GET /v1/instances, except that `starting` is called `booting` here'),
});
export type ReservedInstance = z.infer<typeof ReservedInstance>;

export const Reservation = z
  .strictObject({
    reservation_id: z.string().describe('ULID; instances under the contract show it as reservation_id'),
    title: z.string().describe('Label set by the operator'),
    starts_at: z.iso.datetime().describe('Start of the term'),
    ends_at: z.iso.datetime().describe('End of the term, exclusive'),
    status: z
      .enum(['pending', 'active', 'suspended', 'expired', 'cancelled'])
      .describe(
        'Only an `active` contract accepts launches. If the contract stops being active, its running instances continue',
      ),
    renewal: z
      .strictObject({
        mode: RenewalMode.describe(
          'auto_renew: at `ends_at` a new term of the same length begins. manual: the operator extends the contract. none: the contract ends',
        ),
        days_until_end: z.int().describe('Days until `ends_at`, rounded up; 0 after `ends_at`'),
        expiring_soon: z.boolean().describe('True when days_until_end is 14 or less'),
      })
      .describe('What happens at the end of the term'),
    commitment: z
      .array(CommitmentEntry)
      .describe('The GPUs that the contract commits. They are set aside before `starts_at`'),
    utilization: z
      .strictObject({
        allocated_gpus: z.int().describe('Number of GPUs that the listed `instances` use'),
        committed_gpus: z.int().describe('GPUs of all commitment entries'),
        pct: z.number().min(0).max(1).describe('allocated_gpus / committed_gpus, 0.0 to 1.0'),
      })
      .describe('How much of the contract is in use now'),
    instances: z
      .array(ReservedInstance)
      .describe(
        'Instances under the contract that are not terminated, oldest first. An instance that failed stays in the list until it is deleted',
      ),
  })
  .meta({ id: 'Reservation' });
export type Reservation = z.infer<typeof Reservation>;
