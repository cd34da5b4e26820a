// The demo's model: llama.cpp in a container on the supplier's machine. If llama.cpp does not start, or no GPU is left for it, a server beside
// the control plane answers: llama.cpp itself, or a script. The gateway in front of it is the real one.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ENGINE_PORT } from '../kit/engine-image.ts';
import { type FakeUpstream, openFakeUpstream } from '../kit/fake-upstream.ts';
import { type LlamaServer, startLlamaServer } from '../kit/llama-server.ts';
import { BEGIN, DONE, say, stop, usage } from '../kit/stream-chunks.ts';

export const MODEL = 'demo/tiny';
/** The tier that runs on the fleet. */
const ON_FLEET = `${MODEL}:economy`;
/** What llama.cpp says: words that are all different. */
const COMPUTED =
  'This is no script: llama.cpp computes each token on your processor, from weights that know only these words. Gateway, stream, bill and receipt are real.';
const SCRIPTED =
  'This was written before you asked: a script stands in for a model. The gateway, the stream, the bill and the receipt are real.';
const WORDS = SCRIPTED.split(/(?<= )/);
const PROMPT_TOKENS = 9;
/** Slow enough to watch. */
export const PAUSE_MS = 50;

export interface DemoModel {
  /** Who answers for it, in a few words. */
  description: string;
  /** Writes the operator's file of models into a folder, and returns its path. */
  writeFile(dir: string): string;
  /** Adds replicas of an image with llama.cpp to the file, and returns the name that calls use; undefined if llama.cpp does not start here. */
  runOnFleet?: (image: string, gpuType: string) => string;
  /** The text that the image should answer. */
  text: string;
  close(): Promise<void>;
}

/** `start` starts llama.cpp, which has binaries for some platforms alone. */
export async function openDemoModel(start = startLlamaServer): Promise<DemoModel> {
  const server = await start({ text: COMPUTED, tokenMs: PAUSE_MS }).catch(() => undefined);
  return server === undefined ? scriptedModel(await openFakeUpstream()) : computedModel(server);
}

function computedModel(server: LlamaServer): DemoModel {
  const upstream = { base_url: server.baseUrl, model: 'tiny', engine: 'llama_cpp' };
  let folder = '';
  return {
    description: 'llama.cpp computes it on the processor, no GPU does',
    text: COMPUTED,
    writeFile: (dir) => {
      folder = dir;
      return writeModelsFile(dir, upstream);
    },
    runOnFleet: (image, gpuType) => {
      writeModelsFile(folder, upstream, {
        pricing: PRICING,
        deployment: { ...DEPLOYMENT, image, gpu_type: gpuType },
      });
      return ON_FLEET;
    },
    close: server.stop,
  };
}

function scriptedModel(server: FakeUpstream): DemoModel {
  const counted = { prompt_tokens: PROMPT_TOKENS, completion_tokens: WORDS.length };
  const message = { role: 'assistant', content: SCRIPTED };
  const whole = { choices: [{ index: 0, message, finish_reason: 'stop' }], usage: counted };
  const events = [BEGIN, ...WORDS.map((word) => say(word)), stop(), usage(PROMPT_TOKENS, WORDS.length), DONE];
  server.usual = ({ body }) => (body['stream'] === true ? { events, pauseMs: PAUSE_MS } : { body: whole });
  return {
    description: 'llama.cpp does not start on this machine, so a script answers for it',
    text: SCRIPTED,
    writeFile: (dir) => writeModelsFile(dir, { base_url: server.baseUrl, model: 'scripted' }),
    close: server.close,
  };
}

const PRICING = { input_per_1m_tokens_cents: 15, output_per_1m_tokens_cents: 60 };
/** Its price bound is above that of the demo's machine. */
const DEPLOYMENT = {
  port: ENGINE_PORT,
  model: 'tiny',
  engine: 'llama_cpp',
  max_price_per_hour: 100,
  min_replicas: 0,
  max_replicas: 1,
};

function writeModelsFile(dir: string, upstream: object, economy?: object): string {
  const model = {
    id: MODEL,
    modality: 'chat',
    owned_by: 'the demo',
    context_length: 512,
    max_output_tokens: 256,
    pricing: PRICING,
    upstreams: [upstream],
    ...(economy && { economy }),
  };
  const file = join(dir, 'models.yaml');
  // JSON is YAML.
  writeFileSync(file, JSON.stringify({ models: [model] }, undefined, 2));
  return file;
}
