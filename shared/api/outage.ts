// Outages as operators see them: what stopped rentals, how long, and what it cost.
import { z } from 'zod';

const time = z.iso.datetime();
const fields = {
  outage_id: z.string(),
  cause: z
    .enum(['outage', 'gpu_fault', 'own_outage'])
    .describe(
      'outage: rentals could not be reached. gpu_fault: the host reported a broken GPU. own_outage: this service was down',
    ),
  machine_id: z.string().nullable().describe('Id of the machine. Null for an outage of this service'),
  opened_at: time.describe('When it was confirmed'),
  from: time.describe('Time from which the first affected rental is not charged'),
  until: time
    .nullable()
    .describe('When the last affected rental was charged again or ended. Null while the outage lasts'),
  rentals: z.int().describe('Rentals that it has stopped'),
  open_rentals: z.int().describe('Number of affected rentals that are not charged now'),
  credited: z.string().describe('What customers were credited at once for the times that have ended, in dollars'),
  held: z
    .string()
    .describe(
      'What was held for a decision of the operator for the times that have ended, in dollars. It does not change with the decision',
    ),
  evidence: z.string().describe('The verdict on the first affected rental, and its proof'),
};

export const Outage = z.strictObject(fields).meta({ id: 'OperatorOutage' });
export type Outage = z.infer<typeof Outage>;

const OutageRental = z.strictObject({
  instance_id: z.string(),
  org_id: z.string(),
  machine_id: z.string(),
  from: time,
  until: time.nullable(),
  credited: z
    .string()
    .describe('What the customer was credited at once, in dollars; 0 while the outage of this rental lasts'),
  credit_id: z
    .string()
    .nullable()
    .describe('Id of the credit that is or was held for a decision of the operator. Null if nothing was held'),
  credit_dollars: z.string().nullable(),
  credit_state: z.enum(['held', 'released', 'refused']).nullable(),
  evidence: z.string(),
});
export type OutageRental = z.infer<typeof OutageRental>;

export const OutageDetail = z
  .strictObject({
    outage: Outage,
    affected: z.array(OutageRental).describe('The affected rentals, oldest first, at most 200'),
  })
  .meta({ id: 'OperatorOutageDetail' });
export type OutageDetail = z.infer<typeof OutageDetail>;
