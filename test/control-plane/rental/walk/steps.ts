// The steps of a random walk: what customers, operators, hosts, receivers, the clock and the service itself may do next.
import fc from 'fast-check';
import { WORKLOAD_PHASES } from '../../../../shared/protocol/workload.ts';

/** Who and what a step is about is a number; the life takes it modulo what there is. */
const any = fc.nat({ max: 11 });

const launch = fc.record({
  do: fc.constant('launch' as const),
  who: any,
  what: fc.constantFrom('image', 'private', 'template', 'environment' as const),
  tier: fc.constantFrom('on_demand', 'reserved' as const),
  gpus: fc.integer({ min: 1, max: 3 }),
  hours: fc.constantFrom(undefined, undefined, 1, 5),
  disk: fc.constantFrom(undefined, undefined, 50),
  hasKeys: fc.boolean(),
});

const ofCustomers = fc.oneof(
  { weight: 4, arbitrary: launch },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('delete' as const), which: any }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('rename' as const), which: any }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom('store', 'store', 'forget' as const),
      what: fc.constantFrom('registry-credentials', 'ssh-keys' as const),
      who: any,
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom('subscribe', 'subscribe', 'rotate', 'switch', 'retry', 'unsubscribe' as const),
      who: any,
      which: any,
    }),
  },
);

const ofOperators = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('contract' as const),
      who: any,
      gpus: fc.integer({ min: 1, max: 3 }),
      startsIn: fc.constantFrom(0, 0, 1),
      days: fc.integer({ min: 1, max: 3 }),
      renewal: fc.constantFrom('auto_renew', 'manual', 'none' as const),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constantFrom('suspend', 'resume', 'resume', 'cancel', 'extend', 'reassign' as const),
      which: any,
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('listing' as const), machine: any, on: fc.boolean() }) },
);

const ofHosts = fc.oneof(
  { weight: 2, arbitrary: fc.record({ do: fc.constant('host' as const), machine: any }) },
  // One container reports whatever it likes.
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('report' as const),
      which: any,
      phase: fc.constantFrom(...WORKLOAD_PHASES),
      failure: fc.constantFrom(null, 'image_pull_failed', 'start_failed' as const),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('probe' as const), which: any, ok: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('link' as const), machine: any, up: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('offer' as const), machine: any, on: fc.boolean() }) },
);

const ofTheRest = fc.oneof(
  // Hosts and loops do their part for a while: most of a life is like that.
  { weight: 8, arbitrary: fc.record({ do: fc.constant('work' as const), rounds: fc.integer({ min: 2, max: 10 }) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('loops' as const), rounds: fc.constantFrom(1, 2, 12) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('wait' as const),
      seconds: fc.constantFrom(1, 31, 61, 301, 901, 3_601, 20_000, 90_000),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('answer' as const), status: fc.constantFrom(204, 500, 410, 0) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
);

const anyStep = fc.oneof(
  { weight: 4, arbitrary: ofCustomers },
  { weight: 2, arbitrary: ofOperators },
  { weight: 3, arbitrary: ofHosts },
  { weight: 5, arbitrary: ofTheRest },
);
export type Step = typeof anyStep extends fc.Arbitrary<infer T> ? T : never;

/** Long enough that what one step begins is met by others, and comes to its end. */
export const anyWalk: fc.Arbitrary<Step[]> = fc.array(anyStep, { minLength: 60, maxLength: 120, size: 'max' });

/** These steps come first, so that no walk has to find by chance what launches need. */
export const BEGINNING: readonly Step[] = [
  ...[0, 1].flatMap((who): Step[] => [
    { do: 'store', what: 'registry-credentials', who },
    { do: 'store', what: 'ssh-keys', who },
    { do: 'subscribe', who, which: 0 },
  ]),
  { do: 'contract', who: 0, gpus: 3, startsIn: 0, days: 2, renewal: 'auto_renew' },
  { do: 'contract', who: 1, gpus: 2, startsIn: 0, days: 1, renewal: 'none' },
];
