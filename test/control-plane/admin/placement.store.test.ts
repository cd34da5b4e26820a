// The operator's explanation of a placement: what each condition removes now, the candidates in their order, what would work instead, and the
// attempts.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { PlacementExplanation } from '../../../shared/api/placement.ts';
import { openOperator, type Operator } from '../../kit/operator.ts';
import { runCommand } from '../../kit/operator-commands.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

let world: World;
let operator: Operator;
let who: WorldAccount;
beforeEach(async () => {
  world = await openWorld();
  operator = openOperator(world);
  who = await world.customer(10_000_000);
});
afterEach(async () => {
  await operator.http.close();
  await world.close();
});

const explain = async (id: string): Promise<PlacementExplanation> =>
  PlacementExplanation.parse(await operator.ask('GET', `/admin/instances/${id}/placement`));
const left = ({ filters }: PlacementExplanation): [string | null, number, number][] =>
  filters.map(({ field, removed, left: offerings }) => [field, removed, offerings]);
const A100 = { name: 'NVIDIA A100-SXM4-80GB', memory_mib: 81_920 };

describe('of a placed instance', () => {
  test('shows the candidates as if it were placed now: the cheapest first, then the fewest GPUs left over', async () => {
    const dear = await world.machine({ gpus: 2, dollars: 3, region: 'us-east' });
    const large = await world.machine({ gpus: 8, dollars: 2 });
    const small = await world.machine({ gpus: 4, dollars: 2 });
    await world.machine({ gpus: 1, dollars: 1 });
    await world.machine({ gpus: 8, dollars: 1, gpu: A100 });
    const id = await world.run(who, { gpu_count: 2, max_price_per_hour: 7 });
    const shown = await explain(id);
    expect(shown).toMatchObject({
      status: 'running',
      machine_id: small.machineId,
      market: 'on_demand',
      alternatives: [],
    });
    expect(shown.candidates).toMatchObject([
      { rank: 1, machine_id: small.machineId, price_per_hour: 4, gpus_left_over: 0 },
      { rank: 2, machine_id: large.machineId, price_per_hour: 4, gpus_left_over: 6 },
      { rank: 3, machine_id: dear.machineId, price_per_hour: 6, gpus_left_over: 0, region: 'us-east' },
    ]);
    expect(left(shown)).toEqual([
      [null, 0, 5],
      ['gpu_type', 1, 4],
      ['gpu_count', 1, 3],
      [null, 0, 3],
      ['max_price_per_hour', 0, 3],
    ]);
    expect(shown.attempts.map(({ what }) => what)).toEqual([
      'instance.creating',
      'instance.starting',
      'instance.running',
    ]);
  });

  test('keeps to the preferred region while it has an offering', async () => {
    await world.machine({ dollars: 1, region: 'us-east' });
    const near = await world.machine({ gpus: 2, dollars: 3, region: 'eu-west' });
    const id = await world.run(who, { region: 'eu-west' });
    expect((await explain(id)).candidates.map(({ machine_id: machineId }) => machineId)).toEqual([near.machineId]);
  });
});

describe('of an instance whose launch found nothing more', () => {
  test('says which condition left nothing, and what would work', async () => {
    const { machineId } = await world.machine({ gpus: 2, dollars: 2 });
    const id = await world.launch(who, { gpu_count: 2, max_price_per_hour: 5 });
    await world.machine({ gpus: 8, dollars: 4 });
    await world.machine({ gpus: 1, dollars: 2 });
    await world.machine({ gpus: 4, dollars: 1, gpu: A100 });
    await world.observe(id, { phase: 'failed', failure_code: 'engine_unavailable', detail: 'the disk broke' });
    await world.drive();
    const shown = await explain(id);
    expect(shown).toMatchObject({ status: 'error', candidate_count: 0, candidates: [], machine_id: machineId });
    expect(shown.filters.at(-1)?.left).toBe(0);
    expect(shown.alternatives).toEqual([
      { change: 'No price cap', offerings: 1, price_per_hour: 8 },
      { change: 'Two launches with 1 GPU each', offerings: 1, price_per_hour: 2 },
      { change: 'A100_SXM_80GB instead', offerings: 1, price_per_hour: 2 },
    ]);
    expect(shown.attempts.at(-1)).toMatchObject({ what: 'instance.failed' });
    expect(shown.attempts.at(-1)?.detail).not.toBeNull();
  });
});

test('machines that were tried are left out by no field of the request, and a pinned offering by its field', async () => {
  await world.machine({ dollars: 1 });
  const [offer] = await world.db.read.all(z.object({ id: text }), sql`select id from offerings`);
  const tried = await world.launch(who);
  await world.machine({ dollars: 2 });
  await world.observe(tried, { phase: 'failed', failure_code: 'engine_unavailable', detail: 'the disk broke' });
  await world.drive();
  const pinned = await world.launch(who, { offering_id: offer?.id ?? '' });
  const lastFilter = async (id: string) => (await explain(id)).filters.at(-1);
  expect(await lastFilter(tried)).toMatchObject({ field: null, filter: 'Not one of 1 machines that were tried' });
  expect(await lastFilter(pinned)).toMatchObject({ field: 'offering_id' });
});

describe('of a launch with every condition', () => {
  const GIB = 1024 ** 3;
  const roomy = { diskEnforced: true, storageBytes: 1_000 * GIB };
  const fail = async (id: string): Promise<void> => {
    await world.observe(id, { phase: 'failed', failure_code: 'engine_unavailable', detail: 'the disk broke' });
    await world.drive();
  };

  test('names each condition in words, with what it removes', async () => {
    const { machineId } = await world.machine({ ...roomy, gpus: 2 });
    const [offer] = await world.db.read.all(z.object({ id: text }), sql`select id from offerings`);
    const id = await world.launch(who, {
      gpu_count: 2,
      disk_gb: 300,
      max_price_per_hour: 9,
      region: 'eu-west',
      name: 'mine',
      auto_terminate_hours: 1,
      offering_id: offer?.id ?? '',
    });
    const startMs = world.clock.now();
    await world.machine({ gpus: 2 });
    const shown = await explain(id);
    expect(shown).toMatchObject({ instance_id: id, org_id: who.orgId, machine_id: machineId, status_reason: null });
    expect(shown.request).toEqual({
      name: 'mine',
      gpu: '2 H100_SXM',
      tier: 'on_demand',
      region: 'eu-west',
      offering_id: offer?.id,
      price_cap_per_hour: '9.00',
      disk_gb: 300,
      min_vram_gb: null,
      reservation_id: null,
      // A minute to acknowledge, 25 minutes to start, an hour to run and five minutes to stop.
      ends_at: new Date(startMs + 91 * 60_000).toISOString(),
      trusted_only: false,
    });
    expect(shown.filters.map(({ filter, removed, left: offerings }) => [filter, removed, offerings])).toEqual([
      ['All listed offerings', 0, 2],
      ['GPU type is H100_SXM', 0, 2],
      ['At least 2 GPUs in one machine', 0, 2],
      ['2 of them free', 1, 1],
      ['A disk of 300 GB', 1, 0],
      ['At most $9.00 an hour', 0, 0],
      [`Not one of 0 machines that were tried and the offering ${offer?.id}`, 0, 0],
    ]);
  });

  test('names what would work without one of them, and at most three other types', async () => {
    await world.machine({ ...roomy, gpus: 3, dollars: 1 });
    const [offer] = await world.db.read.all(z.object({ id: text }), sql`select id from offerings`);
    const id = await world.launch(who, { gpu_count: 3, disk_gb: 300, offering_id: offer?.id ?? '' });
    await fail(id);
    for (const name of ['L4', 'L40', 'L40S', 'A10'])
      await world.machine({ ...roomy, gpus: 3, dollars: 0.5, gpu: { name: `NVIDIA ${name}`, memory_mib: 23_034 } });
    await world.machine({ gpus: 4, dollars: 1 });
    const plain = (await explain(id)).alternatives.map(({ change }) => change);
    // Nothing fits the pin, and no other type has the pinned offering.
    expect(plain).toEqual([]);
    const free = await world.launch(who, { gpu_count: 3, disk_gb: 300, max_price_per_hour: 6 });
    await fail(free);
    const { alternatives } = await explain(free);
    expect(alternatives.map(({ change, price_per_hour: price }) => `${change}: ${price}`)).toEqual([
      'Without a size of the disk: 3',
      'A10 instead: 1.5',
      'L4 instead: 1.5',
      'L40 instead: 1.5',
    ]);
  });
});

test('requirements are conditions by their fields, and what would work without them is named', async () => {
  await world.machine({ region: 'us-east', dollars: 1 });
  await world.machine({ region: 'eu-north', cpuCores: 8 });
  const requirements = { regions: ['eu-north', 'eu-west'], min_cpu_cores: 9 };
  const id = await world.launch(who, { requirements });
  const shown = await explain(id);
  expect(left(shown).slice(2)).toEqual([
    ['gpu_count', 0, 2],
    ['requirements.regions', 1, 1],
    ['requirements.min_cpu_cores', 1, 0],
    [null, 0, 0],
  ]);
  expect(shown.filters.map(({ filter }) => filter)).toContain('In eu-north or eu-west');
  expect(shown.request).toMatchObject({ 'requirements.min_cpu_cores': 'with at least 9 processors for the instance' });
  expect(shown.alternatives).toEqual([{ change: 'Without `requirements`', offerings: 2, price_per_hour: 1 }]);
});

test('of an instance that does not exist is refused', async () => {
  await expect(explain('i-none')).rejects.toMatchObject({ code: 'not_found' });
});

test('the command prints its parts', async () => {
  await world.machine();
  const id = await world.run(who);
  const text = await runCommand(world, ['admin', 'instance', 'placement', id]);
  for (const part of ['request\n', 'filters\n', 'candidates\n', 'attempts\n', 'All listed offerings'])
    expect(text).toContain(part);
});
