// The demo's model server: it answers every request with one sentence. The gateway in front of it is the real one.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type FakeUpstream, openFakeUpstream } from '../kit/fake-upstream.ts';
import { BEGIN, DONE, say, stop, usage } from '../kit/stream-chunks.ts';

export const MODEL = 'demo/scripted';
const SENTENCE =
  'This was written before you asked: a script stands in for a model. The gateway, the stream, the bill and the receipt are real.';
const WORDS = SENTENCE.split(/(?<= )/);
const PROMPT_TOKENS = 9;
/** Slow enough to watch. */
const PAUSE_MS = 50;

export interface ScriptedModel {
  /** Writes the operator's file of models into a folder, and returns its path. */
  writeFile(dir: string): string;
  close(): Promise<void>;
}

export async function openScriptedModel(): Promise<ScriptedModel> {
  const server: FakeUpstream = await openFakeUpstream();
  const counted = { prompt_tokens: PROMPT_TOKENS, completion_tokens: WORDS.length };
  const message = { role: 'assistant', content: SENTENCE };
  const whole = { choices: [{ index: 0, message, finish_reason: 'stop' }], usage: counted };
  const events = [BEGIN, ...WORDS.map((word) => say(word)), stop(), usage(PROMPT_TOKENS, WORDS.length), DONE];
  server.usual = ({ body }) => (body['stream'] === true ? { events, pauseMs: PAUSE_MS } : { body: whole });
  return { writeFile: (dir) => writeModelsFile(dir, server.baseUrl), close: server.close };
}

function writeModelsFile(dir: string, baseUrl: string): string {
  const model = {
    id: MODEL,
    modality: 'chat',
    owned_by: 'the demo',
    context_length: 4_096,
    max_output_tokens: 256,
    pricing: { input_per_1m_tokens_cents: 15, output_per_1m_tokens_cents: 60 },
    upstreams: [{ base_url: baseUrl, model: 'scripted' }],
  };
  const file = join(dir, 'models.yaml');
  // JSON is YAML.
  writeFileSync(file, JSON.stringify({ models: [model] }, undefined, 2));
  return file;
}
