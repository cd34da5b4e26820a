// An image with llama.cpp and its tiny model: a model server that runs in a container on the fleet, without any image of others.
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { type TinyModel, tinyModel, TEXT } from './gguf-model.ts';
import { type ImageOptions, pushImage, type TestImage } from './images.ts';
import type { ProgramOptions } from './llama-server-program.ts';
import { runProgram } from './processes.ts';
import type { Registry } from './registry.ts';

/** The server listens on it inside the container. */
export const ENGINE_PORT = 8000;

const ROOT = resolve(import.meta.dirname, '../..');
const PROGRAM = ['llama-server-program.ts', 'llama-server-chat.ts', 'llama-server-engine.ts'];
/** The sources of llama.cpp, which nothing builds here. */
const SOURCES = 'gitRelease.bundle';
const CONTEXT_LENGTH = 512;

export interface EngineImageOptions extends Pick<ImageOptions, 'files' | 'config'> {
  text?: TinyModel['text'];
  tokenMs?: number;
}

/** Node, the C library that it needs, node-llama-cpp and the model: about 60 MB to pull. */
export function engineImage(registry: Registry, options: EngineImageOptions = {}): Promise<TestImage> {
  const { text = TEXT, tokenMs = 0, files, config = {} } = options;
  const settings: ProgramOptions = {
    modelFile: '/srv/tiny.gguf',
    contextLength: CONTEXT_LENGTH,
    slots: 4,
    embeds: false,
    tokenMs,
    model: 'tiny',
    counts: true,
    loadsWhenTold: false,
    endsWithInput: false,
    port: ENGINE_PORT,
  };
  const command = ['/usr/bin/node', `/srv/kit/${PROGRAM[0]}`, JSON.stringify(settings)];
  return pushImage(
    registry,
    { name: 'engine', config: { ...config, Entrypoint: command }, ...(files && { files }) },
    async (root) => {
      await copyNode(root);
      const kit = join(root, 'srv/kit');
      mkdirSync(kit, { recursive: true });
      for (const name of PROGRAM) copyFileSync(join(import.meta.dirname, name), join(kit, name));
      writeFileSync(join(root, 'srv/package.json'), '{"type":"module"}');
      for (const dir of packagesOf(['node-llama-cpp', '@huggingface/jinja', `@node-llama-cpp/linux-${process.arch}`])) {
        cpSync(dir, join(root, 'srv', relative(ROOT, dir)), {
          recursive: true,
          filter: (path) => basename(path) !== SOURCES && basename(path) !== 'node_modules',
        });
      }
      writeFileSync(join(root, 'srv/tiny.gguf'), tinyModel({ kind: 'sentence', text, contextLength: CONTEXT_LENGTH }));
      mkdirSync(join(root, 'tmp'), { mode: 0o1777 });
    },
  );
}

/** Node and the shared libraries that it is linked against, at their paths. */
async function copyNode(root: string): Promise<void> {
  const node = realpathSync(process.execPath);
  const linked = await runProgram({ command: 'ldd', args: [node] });
  const libraries = [...linked.matchAll(/(\/\S+) \(0x/g)].map(([, path = '']) => path);
  for (const path of libraries) copyTo(path, join(root, path));
  // llama.cpp computes with several threads.
  for (const path of await openMp()) copyTo(path, join(root, path));
  copyTo(node, join(root, 'usr/bin/node'));
}

/** The library for threads of compilers, which the binaries of llama.cpp load. */
async function openMp(): Promise<string[]> {
  const known = await runProgram({ command: '/sbin/ldconfig', args: ['-p'] });
  return [...known.matchAll(/libgomp\.so\.1 .*=> (\/\S+)/g)].map(([, path = '']) => path);
}

function copyTo(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  copyFileSync(from, to);
}

/** The folders of packages and of all that they depend on. */
function packagesOf(names: readonly string[]): string[] {
  const found = new Set<string>();
  const add = (name: string, from: string): void => {
    const dir = folderOf(name, from);
    if (dir === undefined || found.has(dir)) return;
    found.add(dir);
    const { dependencies = {} } = JSON.parse(readFileSync(join(dir, 'package.json'), 'utf8')) as {
      dependencies?: Record<string, string>;
    };
    for (const dependency of Object.keys(dependencies)) add(dependency, dir);
  };
  for (const name of names) add(name, ROOT);
  return [...found];
}

/** The search of Node: the package is in the next `node_modules` above. */
function folderOf(name: string, from: string): string | undefined {
  for (let dir = from; dir.startsWith(ROOT); dir = dirname(dir)) {
    const path = join(dir, 'node_modules', name);
    if (existsSync(path)) return path;
  }
  return undefined;
}
