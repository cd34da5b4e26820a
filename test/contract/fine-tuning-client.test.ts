// The official client runs fine-tuning unmodified: upload, create, list, retrieve, events, checkpoints, cancel.
import OpenAI, { toFile } from 'openai';
import { beforeEach, expect, test } from 'vitest';
import { tunableModels } from '../kit/models.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { trainingLines } from './forms.ts';

openApiForEachTest(() => ({ settings: { models: tunableModels() } }));

let client: OpenAI;
beforeEach(async () => {
  const { port } = await api.http.listen({ host: '127.0.0.1', port: 0 });
  client = new OpenAI({ apiKey: owner.key, baseURL: `http://127.0.0.1:${port}/v1`, maxRetries: 0 });
});

/** The client's types know neither our methods nor `svc`; it sends both unchanged. */
function params(file: string): OpenAI.FineTuning.JobCreateParams {
  return JSON.parse(
    JSON.stringify({
      model: 'tiny-base',
      training_file: file,
      method: { type: 'lora', lora: { lora_r: 8, lora_alpha: 16, lora_dropout: 0 } },
      svc: { max_budget_usd: 6 },
    }),
  ) as OpenAI.FineTuning.JobCreateParams;
}

async function all<T>(pages: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const each of pages) found.push(each);
  return found;
}

test('the official client does all of it', async () => {
  const file = await client.files.create({
    file: await toFile(Buffer.from(trainingLines(12)), 'train.jsonl'),
    purpose: 'fine-tune',
  });
  const { jobs } = client.fineTuning;
  const [first, second, third] = [
    await jobs.create(params(file.id)),
    await jobs.create(params(file.id)),
    await jobs.create(params(file.id)),
  ];
  expect(first).toMatchObject({ object: 'fine_tuning.job', status: 'validating', training_file: file.id });
  const listed = await all(jobs.list({ limit: 2 }));
  expect(listed.map(({ id }) => id)).toEqual([third.id, second.id, first.id]);
  await api.world.drive();
  expect(await jobs.retrieve(first.id)).toMatchObject({ id: first.id, status: 'queued', result_files: [] });
  const events = await all(jobs.listEvents(first.id, { limit: 1 }));
  expect(events.map(({ message }) => message)).toEqual([
    'The training file is valid. The job waits for a machine.',
    'The job was created. $6.00 are held for it.',
  ]);
  expect(await all(jobs.checkpoints.list(first.id))).toEqual([]);
  expect(await jobs.cancel(first.id)).toMatchObject({ status: 'cancelled', finished_at: expect.any(Number) });
  expect(await jobs.cancel(first.id)).toMatchObject({ status: 'cancelled' });
  await expect(client.files.delete(file.id)).rejects.toMatchObject({ status: 409, code: 'conflict' });
  for (const { id } of [second, third]) await jobs.cancel(id);
  expect(await client.files.delete(file.id)).toMatchObject({ deleted: true });
  await expect(jobs.retrieve('ftjob_nothing')).rejects.toMatchObject({ status: 404, code: 'not_found' });
});
