// Jobs of an agent on a real engine: inputs go in, a trainer runs without a network, events and files come out, also over a killed agent.
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { DesiredWorkload, ObservedWorkload } from '../../../shared/protocol/workload.ts';
import { engineContents, withoutSpare } from '../../kit/engine.ts';
import { eventually } from '../../kit/processes.ts';
import { trainerImage, type TrainerOptions } from '../../kit/trainer.ts';
import { startAgentWorld, type AgentWorld } from '../agent-world.ts';

const LINES = Array.from({ length: 20 }, (_, i) => 'x'.repeat(80 + i)).join('\n');
const MINUTE_MS = 60_000;
let world: AgentWorld;
beforeAll(async () => {
  world = await startAgentWorld({ quarantineMinutes: 0.1 });
});
afterAll(() => world.stop());

let made = 0;
/** A job with a trainer of its own. */
async function job(
  options: Omit<TrainerOptions, 'name'>,
  runMs = 10 * MINUTE_MS,
  more: string[] = [],
): Promise<DesiredWorkload> {
  made += 1;
  const image = await trainerImage(world.registry, { name: `trainer-${made}`, ...options });
  const inputs = [
    world.plane.jobs.input('train.jsonl', `${LINES}\n`),
    ...more.map((state) => world.plane.jobs.input('resume.ckpt', `${state}\n`)),
  ];
  return world.workload(`wl_${made}`, image.pinnedRef, {
    job: { inputs, config: '{}', run_ms_max: runMs },
  });
}

const eventsOf = (id: string) => (world.plane.jobs.events.get(id) ?? []).map(({ event }) => event);
const lossesOf = (id: string): number[] =>
  eventsOf(id).flatMap(({ loss, type }) => (type === 'metrics' ? [loss ?? NaN] : []));

/** A job that hangs beyond its limit. The grace is a minute, in which other jobs run and end. */
let hanging: DesiredWorkload;
const desire = (workloads: readonly DesiredWorkload[]): void => world.plane.desire([hanging, ...workloads]);

async function finished(workload: DesiredWorkload): Promise<ObservedWorkload> {
  return world.plane.phase(workload.workload_id, 'finished', 90_000);
}

test('goes on while no agent runs, and the next agent sends each event once', async () => {
  const workload = await job({ steps: 40, every: 10 });
  world.plane.desire([workload]);
  await eventually('some events', 30_000, async () => (lossesOf(workload.workload_id).length > 3 ? true : undefined));
  process.kill(world.agent().pid, 'SIGKILL');
  await world.agent().exited;
  await world.startAgent();
  const { job: report } = await finished(workload);
  expect(report?.ran_ms).toBeGreaterThan(0);
  expect(eventsOf(workload.workload_id).flatMap(({ step, type }) => (type === 'metrics' ? [step] : []))).toEqual(
    Array.from({ length: 40 }, (_, i) => i + 1),
  );
  expect(world.plane.jobs.files.get('step-40')?.toString()).toMatch(/^40 /);
});

describe('a job, while another one hangs,', () => {
  beforeAll(async () => {
    hanging = await job({ steps: 1_000, every: 500, fault: 'hangs' }, 2_000);
    desire([]);
  });

  test('runs to its end: its loss falls, its checkpoint and result arrive with their hashes', async () => {
    const workload = await job({ steps: 12, every: 5 });
    desire([workload]);
    const { job: report } = await finished(workload);
    expect(report).toMatchObject({
      exit_code: 0,
      stopped_at_limit: false,
      skipped_lines: 0,
      ran_ms: expect.any(Number),
    });
    const [result] = report?.results ?? [];
    const content = world.plane.jobs.files.get('adapter.txt') ?? Buffer.alloc(0);
    expect(result).toEqual({
      name: 'adapter.txt',
      bytes: content.length,
      sha256: createHash('sha256').update(content).digest('hex'),
    });
    expect(content.toString()).toContain('after 12 steps');
    expect(world.plane.jobs.files.get('step-10')?.toString()).toMatch(/^10 /);
    const losses = lossesOf(workload.workload_id);
    expect(losses).toHaveLength(12);
    expect(losses.at(-1)).toBeLessThan((losses[0] ?? 0) / 2);
  });

  test('has no network, no guest and no holder', async () => {
    const workload = await job({ steps: 100, every: 50 });
    desire([workload]);
    await world.plane.phase(workload.workload_id, 'running');
    const [found] = await world.engine.docker.listContainers({
      filters: { label: [`svc.workload_id=${workload.workload_id}`] },
    });
    const facts = await world.engine.docker.getContainer(found?.Id ?? '').inspect();
    expect(facts.HostConfig.NetworkMode).toBe('none');
    const mounted = facts.Mounts.map(({ Destination: path, RW: isWritable }) => `${path} ${isWritable}`);
    expect(mounted.toSorted()).toEqual(['/job/job.json false', '/job/train.jsonl false']);
    expect(() => world.holderPid(workload.workload_id)).toThrow('no holder');
    desire([{ ...workload, desired: 'removed' }]);
    await world.plane.phase(workload.workload_id, 'stopped');
    await world.plane.phase(workload.workload_id, 'removed', 60_000);
    expect(withoutSpare(await engineContents(world.engine.docker)).join()).not.toContain(workload.workload_id);
  });

  test('goes on from the checkpoint of another machine', async () => {
    const workload = await job({ steps: 12, every: 100 }, MINUTE_MS, ['10 0.5']);
    desire([workload]);
    await finished(workload);
    expect(lossesOf(workload.workload_id)).toHaveLength(2);
  });

  test('is sent SIGTERM at its limit and leaves a checkpoint and a partial result', async () => {
    const workload = await job({ steps: 1_000, every: 500 }, 3_000);
    desire([workload]);
    const { job: report } = await finished(workload);
    expect(report).toMatchObject({ exit_code: 0, stopped_at_limit: true, results: [{ name: 'adapter.txt' }] });
  });

  test('that crashes has no result, and its garbage is counted', async () => {
    const crash = await job({ steps: 20, every: 2, fault: 'crashes' });
    const garbage = await job({ steps: 8, every: 100, fault: 'prints garbage' });
    desire([crash, garbage]);
    expect((await finished(crash)).job).toMatchObject({
      exit_code: 3,
      results: null,
      detail: expect.stringContaining('3'),
    });
    const { job: report } = await finished(garbage);
    expect(report).toMatchObject({ exit_code: 0, results: [{ name: 'adapter.txt' }] });
    expect(report?.skipped_lines).toBeGreaterThan(0);
    expect(lossesOf(garbage.workload_id)).toHaveLength(8);
  });

  test('that hangs at its limit is killed after the grace', async () => {
    const { job: report } = await finished(hanging);
    expect(report).toMatchObject({ exit_code: 137, stopped_at_limit: true, results: null });
  });
});
