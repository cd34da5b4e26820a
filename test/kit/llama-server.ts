// A real model server for tests and the demo: llama.cpp with a tiny model whose answers are known, in a process of its own.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TinyModel, tinyModel, TEXT } from './gguf-model.ts';
import type { ProgramOptions } from './llama-server-program.ts';
import { eventually, startProgram } from './processes.ts';

export interface LlamaServer {
  /** The address ends with /v1. */
  baseUrl: string;
  pid: number;
  /** Tokens of answers that were computed so far. */
  predictedTokens(): Promise<number>;
  /** Resolves when `tokens` tokens in total were computed. */
  predicts(tokens: number): Promise<void>;
  /** Resolves when `requests` requests wait for a slot. */
  waits(requests: number): Promise<void>;
  /** Resolves when no slot works any more. */
  idle(): Promise<void>;
  /** Loads the model of a server that `loadsWhenTold`. Resolves when it is loaded. */
  load(): Promise<void>;
  /** SIGKILL. Resolves when the process is gone. */
  kill(): Promise<void>;
  stop(): Promise<void>;
}

export type LlamaServerOptions = Partial<Omit<ProgramOptions, 'modelFile'> & Pick<TinyModel, 'kind' | 'text'>>;

const PROGRAM = join(import.meta.dirname, 'llama-server-program.ts');
const USUAL = { contextLength: 512, slots: 4, embeds: false, tokenMs: 0 };

/** @throws Error with the program's output if llama.cpp does not start on this platform */
export async function startLlamaServer(options: LlamaServerOptions = {}): Promise<LlamaServer> {
  const { kind = 'sentence', text = TEXT, ...rest } = options;
  const dir = mkdtempSync(join(tmpdir(), 'llama-'));
  const modelFile = join(dir, 'tiny.gguf');
  const settings: ProgramOptions = {
    ...USUAL,
    model: 'tiny.gguf',
    counts: true,
    loadsWhenTold: false,
    endsWithInput: true,
    port: 0,
    ...rest,
    modelFile,
  };
  writeFileSync(modelFile, tinyModel({ kind, text, contextLength: settings.contextLength }));
  const program = startProgram({
    command: process.execPath,
    args: [PROGRAM, JSON.stringify(settings)],
    stdin: 'pipe',
  });
  const stop = async (signal: NodeJS.Signals): Promise<void> => {
    await program.stop(signal);
    rmSync(dir, { recursive: true, force: true });
  };
  const loaded = (): Promise<unknown> => program.waitForOutput(/the model is loaded/, 30_000);
  try {
    const [, address = ''] = await program.waitForOutput(/listening on (\S+)\n/, 30_000);
    if (!settings.loadsWhenTold) await loaded();
    return {
      baseUrl: `http://${address}/v1`,
      pid: program.pid,
      predictedTokens: () => figure(address, 'tokens_predicted_total'),
      predicts: (tokens) => until(address, 'tokens_predicted_total', (count) => count >= tokens),
      waits: (requests) => until(address, 'requests_deferred', (count) => count >= requests),
      idle: () => until(address, 'requests_processing', (count) => count === 0),
      load: async () => {
        program.write('load\n');
        await loaded();
      },
      kill: () => stop('SIGKILL'),
      stop: () => stop('SIGTERM'),
    };
  } catch (error) {
    await stop('SIGKILL').catch(() => undefined);
    throw error;
  }
}

async function until(address: string, name: string, isReached: (count: number) => boolean): Promise<void> {
  await eventually(name, 10_000, async () => (isReached(await figure(address, name)) ? true : undefined));
}

async function figure(address: string, name: string): Promise<number> {
  const text = await (await fetch(`http://${address}/metrics`)).text();
  return Number(new RegExp(`^llamacpp:${name} (\\d+)$`, 'm').exec(text)?.[1]);
}
