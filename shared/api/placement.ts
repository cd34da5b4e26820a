// The reasons why an instance got its machine, or why it would get none at present.
import { z } from 'zod';

const time = z.iso.datetime();

const PlacementFilter = z.strictObject({
  filter: z.string().describe('The condition in words'),
  field: z
    .string()
    .nullable()
    .describe('The field of the request that causes the condition. Null if the condition is a rule of the service'),
  removed: z.int().min(0),
  left: z.int().min(0).describe('Number of offerings that are left after this condition and those before it'),
});
export type PlacementFilter = z.infer<typeof PlacementFilter>;

const PlacementCandidate = z.strictObject({
  rank: z.int().describe('Rank of the candidate. The lowest rank is tried first'),
  machine_id: z.string(),
  region: z.string(),
  price_per_hour: z.number().describe('The price of all GPUs of the launch. The cheapest comes first'),
  gpus_left_over: z
    .int()
    .describe(
      'Number of GPUs that stay free on the machine. If prices are equal, the candidate with the fewest comes first, so that whole machines stay free',
    ),
});
export type PlacementCandidate = z.infer<typeof PlacementCandidate>;

const PlacementAlternative = z.strictObject({
  change: z.string().describe('What to ask for instead, in words'),
  offerings: z.int().describe('Offerings that would fit now'),
  price_per_hour: z.number().describe('The lowest price of such a launch'),
});
export type PlacementAlternative = z.infer<typeof PlacementAlternative>;

const PlacementAttempt = z.strictObject({
  at: time,
  what: z.string().describe('The event'),
  machine_id: z.string().nullable(),
  detail: z.string().nullable(),
});
export type PlacementAttempt = z.infer<typeof PlacementAttempt>;

export const PlacementExplanation = z
  .strictObject({
    instance_id: z.string(),
    org_id: z.string(),
    status: z.string(),
    status_reason: z.string().nullable(),
    machine_id: z.string().nullable().describe('The machine that runs the instance, or that ran it last'),
    as_of: time.describe('Time of the filters and candidates. Earlier filters and candidates are not stored'),
    request: z
      .record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]))
      .describe('What was asked for'),
    market: z
      .enum(['on_demand', 'reserved', 'spot'])
      .describe(
        'reserved: only slots of the contract count, so there are no filters. spot: there is no capacity, because spot is not sold',
      ),
    filters: z.array(PlacementFilter).describe('The conditions, in the order in which they are explained'),
    candidate_count: z.int().describe('Candidates that fit now, at most 64'),
    candidates: z.array(PlacementCandidate).describe('The first 20 of them, best first'),
    alternatives: z.array(PlacementAlternative).describe('What would work now; empty if there is a candidate'),
    attempts: z.array(PlacementAttempt).describe('What the journal has of its launch, oldest first'),
  })
  .meta({ id: 'PlacementExplanation' });
export type PlacementExplanation = z.infer<typeof PlacementExplanation>;
