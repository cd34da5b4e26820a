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
