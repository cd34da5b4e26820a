// Outages as operators see them: what stopped rentals, how long, and what it cost.
import { z } from 'zod';

const time = z.iso.datetime();
const fields = {
  outage_id: z.string(),
  cause: z.enum(['outage', 'gpu_fault', 'own_outage']).describe('own_outage: this service was away'),
  machine_id: z.string().nullable().describe('Null for an outage of our own'),
  opened_at: time.describe('When it was confirmed'),
  from: time.describe('From then on the first of its rentals is not charged'),
  until: time.nullable().describe('When the last of its rentals was charged again or ended; null while it lasts'),
  rentals: z.int().describe('Rentals that it has stopped'),
  open_rentals: z.int().describe('Those of them that are not charged now'),
  credited: z.string().describe('What the ended times gave to customers at once, in dollars'),
  held: z.string().describe('What of them was held for the operator, whatever the decision was, in dollars'),
  evidence: z.string().describe('The verdict and its proof, as for the first rental'),
};

export const Outage = z.strictObject(fields).meta({ id: 'OperatorOutage' });
export type Outage = z.infer<typeof Outage>;

const OutageRental = z.strictObject({
  instance_id: z.string(),
  org_id: z.string(),
  machine_id: z.string(),
  from: time,
  until: time.nullable(),
  credited: z.string().describe('In dollars; 0 while it lasts'),
  credit_id: z.string().nullable().describe('What of it is or was held for the operator'),
  credit_dollars: z.string().nullable(),
  credit_state: z.enum(['held', 'released', 'refused']).nullable(),
  evidence: z.string(),
});
export type OutageRental = z.infer<typeof OutageRental>;

export const OutageDetail = z
  .strictObject({ outage: Outage, affected: z.array(OutageRental).describe('Oldest first, at most 200') })
  .meta({ id: 'OperatorOutageDetail' });
export type OutageDetail = z.infer<typeof OutageDetail>;
