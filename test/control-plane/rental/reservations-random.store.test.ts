// Random lives of contracts: whatever operators and customers do, in whatever order, slots and states keep their promises.
import fc from 'fast-check';
import { expect, inject, test } from 'vitest';
import { ServiceError } from '../../../shared/errors.ts';
import { isOver } from '../../../control-plane/rental/reservations/term.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';
import { brokenContracts } from './contract-promises.ts';

const FEW = inject('postgresUrl') === undefined ? 25 : 10;
const RUNS = process.env['SOAK'] === '1' ? 400 : FEW;
const DAY_MS = 24 * 3_600_000;
const CONTRACTS = 3;

const anyStep = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('create' as const),
      gpus: fc.integer({ min: 1, max: 5 }),
      inHours: fc.constantFrom(0, 23, 24, 25, 72),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constantFrom('suspend' as const, 'resume' as const, 'cancel' as const, 'extend' as const),
      which: fc.nat({ max: CONTRACTS - 1 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('launch' as const),
      gpus: fc.integer({ min: 1, max: 3 }),
      tier: fc.constantFrom('reserved' as const, 'on_demand' as const),
      hours: fc.constantFrom(undefined, 1, 24),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('end' as const), which: fc.nat({ max: 5 }) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wait' as const), hours: fc.constantFrom(1, 24, 48, 288) }) },
);
type Step = typeof anyStep extends fc.Arbitrary<infer T> ? T : never;

interface Life {
  world: World;
  who: WorldAccount;
  contracts: string[];
  instances: string[];
}

async function take(step: Step, { world, who, contracts, instances }: Life): Promise<void> {
  const { reservations } = world.rooms;
  const now = world.clock.now();
  const at = (days: number): string => new Date(now + days * DAY_MS).toISOString();
  switch (step.do) {
    case 'create': {
      const entry = { gpu_type: 'H100_SXM', gpu_count: step.gpus, region: 'eu-west' };
      const [startsAt, endsAt] = [at(step.inHours / 24), at(10 + contracts.length)];
      const renewal = contracts.length % 2 === 0 ? 'auto_renew' : 'none';
      const term = { starts_at: startsAt, ends_at: endsAt, renewal } as const;
      const made = await reservations.create({ org_id: who.orgId, title: 'x', commitment: [entry], ...term });
      contracts.push(made.contract.id);
      return;
    }
    case 'launch': {
      const limit = step.hours === undefined ? {} : { auto_terminate_hours: step.hours };
      instances.push(await world.run(who, { tier: step.tier, gpu_count: step.gpus, ...limit }));
      return;
    }
    case 'end':
      await world.end(who, instances[step.which] ?? '');
      return;
    case 'wait':
      await world.clock.advance(step.hours * 3_600_000);
      return;
    case 'extend':
      await reservations.extend(contracts[step.which] ?? '', now + 40 * DAY_MS);
      return;
    default:
      await reservations[step.do](contracts[step.which] ?? '');
  }
}

/** Contracts that have GPUs before their lead time, or were not looked at then. The clock went on by a millisecond since. */
async function setAsideAtTheWrongTime(world: World): Promise<string[]> {
  const live = (await world.rooms.reservations.list({ count: 1_000 })).filter(({ contract }) => !isOver(contract));
  const now = world.clock.now();
  const wrong = live.filter(({ contract, claimMs }) => {
    if (contract.claimed_ms === null) return claimMs < now - 1;
    // A renewed contract has kept them from its first term.
    return contract.status === 'pending' && claimMs < contract.starts_ms - DAY_MS;
  });
  return wrong.map(({ contract }) => contract.id);
}

// Specification 3.4: A reservation never leaves its table of statuses, and its slots are there as long as it lives.
test('every contract has as many slots as promised, nobody holds slots of others, and no contract leaves its table of statuses', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 10, maxLength: 30 }), async (steps) => {
      const world = await openWorld();
      try {
        for (const gpus of [4, 2, 1]) await world.machine({ gpus });
        const life: Life = { world, who: await world.customer(10_000_000), contracts: [], instances: [] };
        for (const step of steps) {
          // A refusal is an answer; anything else is a fault.
          await take(step, life).catch((error: unknown) => {
            if (!(error instanceof ServiceError)) throw error;
          });
          await world.drive();
          await world.clock.advance(1);
          expect(await brokenContracts(world)).toEqual([]);
          expect(await setAsideAtTheWrongTime(world)).toEqual([]);
        }
        await world.verify();
      } finally {
        await world.close();
      }
    }),
    { seed: 51, numRuns: RUNS },
  );
});
