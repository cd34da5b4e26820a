// Random lives of instances: whatever customers, hosts, probes and the clock do, in whatever order, their promises hold after each step.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { openSegments } from '../../../control-plane/money/metering/store.ts';
import { gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import type { InstanceRow } from '../../../control-plane/rental/instances/store.ts';
import { INSTANCE_STATES, type InstanceState, mayMove } from '../../../shared/states.ts';
import { Instance } from '../../../shared/api/instance.ts';
import { WORKLOAD_PHASES } from '../../../shared/protocol/workload.ts';
import { type Api, type ApiAccount, openApi } from '../../contract/api.ts';
import { LAUNCH } from '../../kit/world.ts';

const RUNS = process.env['SOAK'] === '1' ? 1000 : 25;
/** Between two rounds of the loops: below the time after which a look at a door is repeated. */
const ROUND_MS = 5_000;
const INSTANCES = 4;
const which = fc.nat({ max: INSTANCES - 1 });

const anyStep = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('launch' as const),
      gpus: fc.integer({ min: 1, max: 3 }),
      hours: fc.constantFrom(undefined, 1, 5),
    }),
  },
  {
    weight: 10,
    arbitrary: fc.record({
      do: fc.constant('report' as const),
      which,
      // Mostly on the way up: else hardly any would ever run.
      phase: fc.oneof({ weight: 3, arbitrary: fc.constant('running' as const) }, fc.constantFrom(...WORKLOAD_PHASES)),
      failure: fc.constantFrom(null, 'image_pull_failed' as const, 'start_failed' as const),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('probe' as const), which, ok: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('delete' as const), which }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('rename' as const), which }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('link' as const), machine: fc.nat({ max: 1 }), up: fc.boolean() }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('wait' as const),
      seconds: fc.constantFrom(1, 31, 61, 301, 901, 3_601, 20_000),
    }),
  },
  // Between these the engine is dead, and what is due stays due.
  {
    weight: 10,
    arbitrary: fc.record({ do: fc.constant('loops' as const), rounds: fc.constantFrom(1, 1, 2, 12) }),
  },
);
type Step = typeof anyStep extends fc.Arbitrary<infer T> ? T : never;

interface Life {
  api: Api;
  owner: ApiAccount;
  machineIds: string[];
  instances: string[];
}

async function take(step: Step, { api, owner, machineIds, instances }: Life): Promise<void> {
  const { world } = api;
  const id = 'which' in step ? (instances[step.which] ?? 'none') : '';
  switch (step.do) {
    case 'launch': {
      const limit = step.hours === undefined ? {} : { auto_terminate_hours: step.hours };
      await send(api, owner, ['POST', '/v1/instances', { ...LAUNCH, gpu_count: step.gpus, ...limit }]);
      const { json } = await api.call('GET', `/v1/instances?limit=${INSTANCES}`, { key: owner.key });
      instances.splice(0, INSTANCES, ...(json.data ?? []).map((instance) => String(instance['id'])));
      return;
    }
    case 'report': {
      const host_key = step.phase === 'running' ? 'ssh-ed25519 AAAA' : null;
      return world.observe(id, {
        phase: step.phase,
        failure_code: step.phase === 'failed' ? step.failure : null,
        host_key,
      });
    }
    case 'probe':
      world.probeAnswers.set(id, step.ok ? { ok: true } : { ok: false, leg: 'door', detail: 'no answer' });
      return;
    case 'delete':
      return send(api, owner, ['DELETE', `/v1/instances/${id}`]);
    case 'rename':
      return send(api, owner, ['PATCH', `/v1/instances/${id}`, { name: 'renamed' }]);
    case 'link':
      return world.rooms.supply.setOnline(machineIds[step.machine] ?? '', step.up);
    case 'wait':
      return world.clock.advance(step.seconds * 1000);
    case 'loops':
      for (let round = 0; round < step.rounds; round += 1) {
        await runLoops(api);
        await world.clock.advance(ROUND_MS);
      }
      return;
  }
}

/** A refusal is an answer; anything else is a fault. */
async function send(
  api: Api,
  { key }: ApiAccount,
  [method, url, body]: ['POST' | 'PATCH' | 'DELETE', string, object?],
): Promise<void> {
  const { status } = await api.call(method, url, body === undefined ? { key } : { key, body });
  expect(status).toBeLessThan(500);
}

async function runLoops({ world }: Api): Promise<void> {
  const { signal } = new AbortController();
  await world.drive();
  await world.rooms.watch.run(signal);
  for (const id of await world.rooms.metering.tick(signal)) await world.rooms.instances.stopUnpaid(id);
}

const STATE_OF: Record<string, InstanceState> = {
  'instance.creating': 'allocating',
  'instance.placed': 'allocating',
  'instance.starting': 'starting',
  'instance.running': 'running',
  'instance.recovered': 'running',
  'instance.unreachable': 'unreachable',
  'instance.stopping': 'stopping',
  'instance.terminated': 'terminated',
  'instance.failed': 'error',
};
/** Told like one that was terminated. */
const TOLD_AS: Partial<Record<InstanceState, InstanceState>> = { stopped: 'terminated' };
const PUBLIC = ['instance.creating', 'instance.running', 'instance.terminated', 'instance.failed'];
/** One that is stopping gives its GPUs back as soon as the host says that the container is gone. */
const HOLDING = new Set<InstanceState>(['allocating', 'starting', 'running', 'unreachable']);
const PASSING = new Set<InstanceState>(['allocating', 'starting', 'stopping']);

async function brokenPromises({ api, owner, machineIds }: Life): Promise<string[]> {
  const { db, rooms } = api.world;
  const rows = (await rooms.instances.list(owner.orgId, sql`1 = 1`, 1000)).map(({ instance }) => instance);
  const gpus = (await Promise.all(machineIds.map((id) => gpusOf(db.read, id)))).flat();
  const holders = Map.groupBy(gpus, (gpu) => gpu.held_by);
  const charged = (await openSegments(db.read, '', 1000)).map((segment) => segment.subject_id);
  const running = rows.filter(({ status }) => status === 'running').map(({ id }) => id);
  const { json } = await api.call('GET', '/v1/instances?limit=200', { key: owner.key });
  const broken = [
    ...(await Promise.all(rows.map((row) => brokenBy(row, api)))).flat(),
    ...(json.data ?? []).flatMap((instance) => brokenFields(Instance.parse(instance))),
  ];
  for (const row of rows.filter(({ status, workload_id: id }) => id !== null && HOLDING.has(status))) {
    const held = holders.get(row.workload_id)?.length ?? 0;
    if (held !== row.gpu_count) broken.push(`${row.status} holds ${held} of ${row.gpu_count} GPUs`);
  }
  if (charged.toSorted().join() !== running.toSorted().join()) {
    broken.push(`${charged.length} are charged, ${running.length} run`);
  }
  return broken;
}

async function brokenBy(row: InstanceRow, { world }: Api): Promise<string[]> {
  const broken: string[] = [];
  const journal = await world.journal(row.id);
  const path = journal.flatMap((type) => STATE_OF[type] ?? []);
  const strays = path.filter((to, i) => i > 0 && !mayMove(INSTANCE_STATES, path[i - 1] ?? to, to));
  if (strays.length > 0) broken.push(`path ${path.join(', ')}`);
  // What failed is told to have failed, and no more when its row is put away.
  const told = path.at(-1) === 'error' && row.status === 'terminated' ? 'terminated' : path.at(-1);
  if (told !== (TOLD_AS[row.status] ?? row.status)) {
    broken.push(`the journal ends with ${told}, the status is ${row.status}`);
  }
  const twice = PUBLIC.filter((type) => journal.filter((other) => other === type).length > 1);
  if (twice.length > 0) broken.push(`told twice: ${twice.join(', ')}`);
  if (PASSING.has(row.status) && row.due_ms === null) broken.push(`${row.status} and never due`);
  return broken;
}

const UP = new Set<InstanceState>(['running', 'unreachable']);
const OVER = new Set<InstanceState>(['stopped', 'terminated']);
/** No main process ends here, so there is nothing else to explain. */
const EXPLAINED = new Set<InstanceState>(['error', 'stopped', 'unreachable']);
const UNEXPLAINED = new Set<InstanceState>(['allocating', 'starting', 'running']);

/** Which fields an instance has, by its status and its past (specification 2.2). */
function brokenFields(shown: Instance): string[] {
  const { status } = shown;
  const hasRun = shown.ready_at !== null;
  const rules: [string, boolean, boolean][] = [
    ['connection', shown.connection !== null, UP.has(status)],
    ['terminated_at', shown.terminated_at !== null, OVER.has(status)],
    ['unreachable_since', shown.unreachable_since !== undefined, status === 'unreachable'],
    ['last_reachable_at', shown.last_reachable_at !== undefined, hasRun],
    [
      'auto_terminate_at',
      shown.auto_terminate_at !== undefined,
      UP.has(status) && shown.auto_terminate_hours !== undefined,
    ],
  ];
  if (UP.has(status) || UNEXPLAINED.has(status)) rules.push(['ready_at', hasRun, UP.has(status)]);
  if (EXPLAINED.has(status) || UNEXPLAINED.has(status)) {
    rules.push(['status_reason', shown.status_reason !== undefined, EXPLAINED.has(status)]);
  }
  const wrong = rules.filter(([, isThere, shouldBe]) => isThere !== shouldBe);
  return wrong.map(([field, isThere]) => `${status} ${isThere ? 'has' : 'lacks'} ${field}`);
}

test('no status leaves its table, no GPU is held twice, no charge beside running, no event twice, nothing is forgotten', async () => {
  const seen = new Set<InstanceState>();
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 25, maxLength: 60 }), async (steps) => {
      const api = await openApi();
      try {
        const machineIds = [
          (await api.world.machine({ gpus: 4 })).machineId,
          (await api.world.machine({ gpus: 2 })).machineId,
        ];
        const life: Life = { api, owner: await api.account(), machineIds, instances: [] };
        for (const step of steps) {
          await take(step, life);
          expect(await brokenPromises(life)).toEqual([]);
          await api.world.verify();
          for (const { instance } of await api.world.rooms.instances.list(life.owner.orgId, sql`1 = 1`, 1000)) {
            seen.add(instance.status);
          }
        }
      } finally {
        await api.close();
      }
    }),
    { seed: 61, numRuns: RUNS },
  );
  expect([...seen].toSorted()).toEqual([
    'allocating',
    'error',
    'running',
    'starting',
    'stopped',
    'stopping',
    'terminated',
    'unreachable',
  ]);
}, 600_000);
