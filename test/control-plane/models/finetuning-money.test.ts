// The amounts of a job: cumulative, exact to the second, and never above the budget, whenever they are charged.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Attempt } from '../../../control-plane/models/finetuning/attempts.ts';
import { dueOf, paidMs } from '../../../control-plane/models/finetuning/money.ts';
import { accruedUcents } from '../../../shared/money.ts';

const STARTED_MS = 1_000_000;
const attempt = (rate: bigint, supplierRate: bigint): Attempt => ({
  id: 'wl_1',
  job_id: 'ftjob_1',
  machine_id: 'm',
  supplier_id: 's',
  gpu_type: 'H100_SXM',
  rate_ucents_per_hour: rate,
  supplier_rate_ucents_per_hour: supplierRate,
  supplier_bps: 8_000,
  resume_file_id: null,
  resume_step: 0,
  run_ms_max: 1,
  events_offset: 0,
  last_step: null,
  last_loss: null,
  offline_since_ms: null,
  created_ms: 0,
  started_ms: STARTED_MS,
  stopped_ms: null,
  charged_through_ms: STARTED_MS,
  charged_ucents: 0n,
  supplier_ucents: 0n,
});

const ucents = fc.bigInt({ min: 1n, max: 10n ** 12n });

test('charges in pieces come to the same as one charge, and none of them exceeds the budget', () => {
  const lengths = fc.array(fc.integer({ min: 1, max: 3_600_000 }), { minLength: 1, maxLength: 20 });
  fc.assert(
    fc.property(ucents, ucents, lengths, ucents, (a, b, pieces, budget) => {
      const [rate, supplierRate] = a > b ? [a, b] : [b, a];
      let one = attempt(rate, supplierRate);
      let left = budget;
      let atMs = STARTED_MS;
      for (const ms of pieces) {
        atMs += ms;
        const { chargeUcents, supplierUcents } = dueOf(one, atMs, left);
        expect(chargeUcents).toBeGreaterThanOrEqual(0n);
        expect(supplierUcents).toBeGreaterThanOrEqual(0n);
        expect(supplierUcents).toBeLessThanOrEqual(chargeUcents);
        left -= chargeUcents;
        one = {
          ...one,
          charged_through_ms: atMs,
          charged_ucents: one.charged_ucents + chargeUcents,
          supplier_ucents: one.supplier_ucents + supplierUcents,
        };
      }
      expect(left).toBeGreaterThanOrEqual(0n);
      const whole = accruedUcents(rate, atMs - STARTED_MS);
      expect(one.charged_ucents).toBe(whole < budget ? whole : budget);
    }),
  );
});

test('the supplier gets no more than a charge, although both amounts round at different moments', () => {
  // After 4,800,000 ms, the job has cost 5 and the supplier has earned 3. The last charge was at 1 and 0.
  const one = {
    ...attempt(4n, 3n),
    charged_ucents: 4n,
    supplier_ucents: 1n,
    charged_through_ms: STARTED_MS + 4_799_000,
  };
  expect(dueOf(one, STARTED_MS + 4_800_000, 9n)).toEqual({ chargeUcents: 1n, supplierUcents: 1n });
});

test('the time that is paid costs no more than what is left', () => {
  fc.assert(
    fc.property(ucents, ucents, (left, rate) => {
      const ms = paidMs(left, rate);
      fc.pre(Number.isSafeInteger(ms));
      expect(accruedUcents(rate, ms)).toBeLessThanOrEqual(left);
    }),
  );
});

test('time before the start, or before the last charge, costs nothing', () => {
  const one = { ...attempt(3_600_000n, 1_800_000n), charged_through_ms: STARTED_MS + 5_000, charged_ucents: 5_000n };
  expect(dueOf(one, STARTED_MS + 5_000, 10n ** 9n)).toEqual({ chargeUcents: 0n, supplierUcents: 0n });
  expect(dueOf({ ...one, started_ms: null }, STARTED_MS + 9_000, 10n ** 9n).chargeUcents).toBe(0n);
});
