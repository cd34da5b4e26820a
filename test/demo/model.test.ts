// The demo's chat is answered by llama.cpp, and by a script on a machine where llama.cpp does not start.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { parseModels } from '../../control-plane/models/catalog/models.ts';
import { type DemoModel, MODEL, openDemoModel } from './model.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'model-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

/** What its server says to anybody, according to the operator's file of models. */
async function answerOf(model: DemoModel): Promise<string> {
  const [entry] = parseModels(readFileSync(model.writeFile(dir), 'utf8'), 'models.yaml');
  expect(entry?.id).toBe(MODEL);
  const response = await fetch(`${entry?.upstreams[0]?.base_url}/chat/completions`, {
    method: 'POST',
    body: JSON.stringify({ messages: [{ role: 'user', content: 'What is this?' }], max_tokens: 256 }),
  });
  const { choices } = (await response.json()) as { choices: [{ message: { content: string } }] };
  await model.close();
  return choices[0].message.content;
}

test('llama.cpp computes the answer', async () => {
  const model = await openDemoModel();
  expect(model.description).toContain('llama.cpp computes');
  expect(await answerOf(model)).toMatch(/^This is no script: .* are real\.$/);
});

test('a script answers on a machine where llama.cpp does not start', async () => {
  const model = await openDemoModel(() => Promise.reject(new Error('no binary for this platform')));
  expect(model.description).toContain('llama.cpp does not start on this machine');
  expect(await answerOf(model)).toMatch(/^This was written before you asked: .* are real\.$/);
});
