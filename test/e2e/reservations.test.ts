// Reserved capacity from the operator's command line to a login on a real Docker Engine.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { PricingRow } from '../../shared/api/pricing.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { Reservation } from '../../shared/api/reservation.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';

const Row = z.looseObject({ reservation_id: z.string(), slots: z.int(), in_use: z.int(), free: z.int() });

let stack: RentalStack;
beforeAll(async () => {
  stack = await openRentalStack();
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
});

const operator = async (...words: string[]): Promise<z.infer<typeof Row>> =>
  Row.parse(await stack.controlPlane.operator('admin', 'reservation', ...words));
const pricing = async (): Promise<PricingRow | undefined> =>
  (await stack.customer.api.get('/pricing', pageSchema(PricingRow))).data[0];
const contracts = (): Promise<Reservation[]> => stack.customer.api.get('/reservations', z.array(Reservation));

test('a contract sets GPUs aside, a launch logs in on its slots at no price, and its end stops nothing', async () => {
  const offering = await pricing();
  const gpus = `H100_SXM:3@${offering?.region}`;
  const term = ['--starts', '2026-01-01', '--ends', '2096-01-01', '--renewal', 'manual'];
  const org = stack.customer.orgId;
  const made = await operator('create', '--org', org, '--title', 'Training', ...term, '--gpus', gpus);
  expect(made).toMatchObject({ status: 'active', slots: 3, in_use: 0, free: 3 });
  expect((await pricing())?.available).toBe((offering?.available ?? 0) - 3);

  const instance = await stack.rent({ tier: 'reserved', gpu_count: 2 });
  expect(instance).toMatchObject({ reservation_id: made.reservation_id, price_per_hour: 0, status: 'running' });
  expect((await stack.ssh(instance).run('echo hello')).stdout.toString()).toBe('hello\n');
  expect(await contracts()).toMatchObject([
    {
      reservation_id: made.reservation_id,
      utilization: { allocated_gpus: 2, committed_gpus: 3 },
      instances: [{ instance_id: instance.id, status: 'running', gpu_count: 2 }],
    },
  ]);
  await expect(stack.rent({ tier: 'reserved', gpu_count: 2 })).rejects.toThrow('reservation/no_capacity');

  expect(await operator('cancel', made.reservation_id)).toMatchObject({ status: 'cancelled', slots: 0 });
  expect((await pricing())?.available).toBe((offering?.available ?? 0) - 2);
  expect((await stack.ssh(instance).run('echo still here')).stdout.toString()).toBe('still here\n');
  await expect(stack.rent({ tier: 'reserved' })).rejects.toThrow('reservation/contract_inactive');
});
