// Fine-tuning on a real fleet: upload, quote, train, follow, download and pay to the second; then everything that a trainer or host can do wrong.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Balance } from '../../shared/api/billing.ts';
import { type FineTuningEvent, FineTuningQuoteList } from '../../shared/api/fine-tuning.ts';
import { type FineTuningStack, openFineTuningStack } from '../kit/fine-tuning-stack.ts';
import { eventually } from '../kit/processes.ts';

let stack: FineTuningStack;

beforeAll(async () => {
  stack = await openFineTuningStack({
    quick: { steps: 20, every: 8 },
    long: { steps: 100_000, every: 20 },
    crash: { steps: 20, every: 100, fault: 'crashes' },
    hang: { steps: 20, every: 4, fault: 'hangs' },
    liar: { steps: 8, every: 100, fault: 'lies' },
    noise: { steps: 12, every: 100, fault: 'prints garbage' },
  });
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
});

const metricsOf = async (id: string): Promise<FineTuningEvent['data'][]> =>
  (await stack.events(id)).filter(({ type }) => type === 'metrics').map(({ data }) => data);

const download = async (url: string): Promise<string> => {
  const answer = await fetch(url);
  if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`);
  return answer.text();
};

test('a job is quoted, trained, followed, downloaded and paid to the second', async () => {
  const { data } = await stack.customer.api.post(`/files/${stack.fileId}/quote`, undefined, FineTuningQuoteList);
  expect(data.find(({ model }) => model === 'quick')).toMatchObject({ min_budget_usd: 1.2 });
  const { id } = await stack.train('quick');
  const running = await stack.reached(id, 'running');
  expect(running.result_files).toEqual([]);
  const done = await stack.reached(id, 'succeeded');
  const figures = await metricsOf(id);
  expect(figures.map(({ step }) => step)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
  expect(Number(figures.at(-1)?.['loss'])).toBeLessThan(Number(figures[0]?.['loss']) / 2);
  const checkpoints = await stack.client.fineTuning.jobs.checkpoints.list(id);
  // A busy host uploads the newest checkpoint alone.
  expect([[16, 8], [16]]).toContainEqual(checkpoints.data.map(({ step_number: step }) => step));
  const [url = ''] = done.result_files;
  expect(await download(url)).toContain('after 20 steps');
  // Whole cents are whole seconds here, and the job took about as long as its steps.
  const seconds = done.svc.cost_usd * 100;
  expect(seconds).toBeGreaterThan(3);
  expect(seconds).toBeLessThan(60);
  const { held_cents: held } = await stack.customer.api.get('/balance', Balance);
  expect(held).toBe(0);
});

test('a job goes on while its agent is killed, and each event comes once', async () => {
  const { id } = await stack.train('quick');
  await stack.reached(id, 'running');
  await eventually('some steps', 30_000, async () => ((await metricsOf(id)).length > 3 ? true : undefined));
  await stack.host.daemon.stop('SIGKILL');
  await stack.host.daemon.start();
  await stack.reached(id, 'succeeded');
  expect((await metricsOf(id)).map(({ step }) => step)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
});

// Most of their time is waiting, so they run side by side on the GPUs of the one host.
describe.concurrent('jobs that end badly, or nearly so', () => {
  test('a cancelled job is stopped on its host, and its last checkpoint is stored', async () => {
    const { id } = await stack.train('long');
    await stack.reached(id, 'running');
    await eventually('some steps', 30_000, async () => ((await metricsOf(id)).length > 3 ? true : undefined));
    await stack.client.fineTuning.jobs.cancel(id);
    const { svc } = await stack.reached(id, 'cancelled');
    expect(svc.cost_usd).toBeGreaterThan(0);
    expect((await stack.client.fineTuning.jobs.checkpoints.list(id)).data).not.toEqual([]);
  });

  test('a job whose budget is used up is stopped, and what it has learnt is kept', async () => {
    const { id } = await stack.train('long', 1.2);
    const failed = await stack.reached(id, 'failed', 180_000);
    expect(failed).toMatchObject({ error: { code: 'budget_exceeded' } });
    expect(failed.svc.cost_usd).toBeLessThanOrEqual(1.2);
    expect(failed.svc.cost_usd).toBeGreaterThan(0.5);
    expect(await download(failed.result_files[0] ?? '')).toMatch(/after \d+ steps/);
  });

  test.each([
    ['crash', 'training_failed', 0],
    ['liar', 'result_invalid', 0],
    ['hang', 'budget_exceeded', 60],
  ] as const)('a job fails if its trainer is a %s: %s', async (model, code, mostCents) => {
    const { id } = await stack.train(model, 1.2);
    const failed = await stack.reached(id, 'failed', 240_000);
    expect(failed).toMatchObject({ error: { code } });
    // What was trained before the last stored checkpoint is paid, and nothing after it.
    expect(failed.svc.cost_usd * 100).toBeLessThanOrEqual(mostCents);
  });

  test('a trainer that prints garbage between its events still succeeds', async () => {
    const { id } = await stack.train('noise');
    const done = await stack.reached(id, 'succeeded');
    expect(await metricsOf(id)).toHaveLength(12);
    expect(await download(done.result_files[0] ?? '')).toContain('after 12 steps');
  });
});
