// One machine as operators see it: what decides about it, its GPUs, what runs on it, and what happened to it of late.
import { z } from 'zod';
import { MachineCheck, MachineReliability } from './community.ts';
import { Outage } from './outage.ts';

const time = z.iso.datetime();

const OperatorGpu = z.strictObject({
  gpu_uuid: z.string(),
  index: z.int(),
  gpu_type: z.string(),
  vram_gb: z.int(),
  usable: z.boolean().describe('It may be on offer'),
  fault: z.string().nullable().describe('What the host has reported about it; null if nothing is wrong'),
  used_by: z
    .string()
    .nullable()
    .describe('The instance, or the workload of a model or a job, that uses the GPU. Null if nothing uses it'),
  reserved_by: z.string().nullable().describe('The contract for which the GPU is set aside. Null if there is none'),
});
export type OperatorGpu = z.infer<typeof OperatorGpu>;

const MachineRental = z.strictObject({
  instance_id: z.string(),
  org_id: z.string(),
  status: z.string(),
  gpus: z.string(),
  price_per_hour: z.number(),
  since: time.describe('Since when it has this status'),
});
export type MachineRental = z.infer<typeof MachineRental>;

export const OperatorMachine = z
  .strictObject({
    machine: z
      .record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]))
      .describe('The machine, as in the list'),
    on_offer: z.boolean().describe('All required checks have passed: its free GPUs are on offer'),
    checks: z.array(MachineCheck).describe('The checks, in the order in which they decide'),
    reliability: MachineReliability,
    gpus: z.array(OperatorGpu),
    rentals: z.array(MachineRental).describe('Instances that are on the machine now, newest first, at most 50'),
    outages: z.array(Outage).describe('The latest 20'),
    events: z
      .array(z.strictObject({ at: time, type: z.string(), detail: z.string() }))
      .describe('What happened to it, newest first, at most 20'),
  })
  .meta({ id: 'OperatorMachine' });
export type OperatorMachine = z.infer<typeof OperatorMachine>;
