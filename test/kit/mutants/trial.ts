// Makes a copy of the project, plants faults in it and runs tests there. The working tree is never touched.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, relative } from 'node:path';
import { type Fault, planted } from './faults.ts';
import { readReached, withProbes } from './probes.ts';

/** Stands for the failed files if the run was killed or ended without a report. */
export const NO_END = '(no end)';
/** A test file loads the product, which its own time does not include. */
const LOAD_MS = 1_000;
/** The limit of a run of all tests. */
export const WHOLE_LIMIT_MS = 60 * 60_000;

export interface Trial {
  /** Resolves with the test files that fail with these faults, which must not overlap. A run over `limitMs` counts as failed. */
  failing(faults: readonly Fault[], run: TestRun): Promise<string[]>;
  /** Resolves with the test files that run the code of each fault, without planting it. Throws if one of the tests fails. */
  reach(faults: readonly Fault[], tests: readonly string[]): Promise<Map<Fault, TimedFile[]>>;
  /** Resolves with the paths in which the compiler finds an error with these faults. */
  miscompiled(faults: readonly Fault[]): Promise<string[]>;
  close(): void;
}

/** A test file and the time that it takes without a fault. */
export interface TimedFile {
  file: string;
  ms: number;
}

export interface TestRun {
  /** Files or folders. If the list is empty, all tests of the unit project run. */
  tests: readonly string[];
  /** The run ends with the first failure. */
  bail: boolean;
  limitMs: number;
  /** Files at a time; one, unless it is given. */
  workers?: number;
}

/** Copies all files that git would commit, as they are now, and links the `node_modules` of the project. */
export function openTrial(root: string): Trial {
  const dir = mkdtempSync(join(tmpdir(), 'mutants-'));
  const listed = spawnSync('git', ['ls-files', '-z', '-co', '--exclude-standard'], { cwd: root, encoding: 'utf8' });
  for (const path of listed.stdout.split('\0').filter((each) => each !== '')) {
    cpSync(join(root, path), join(dir, 'copy', path), { recursive: true });
  }
  const copy = join(dir, 'copy');
  const bin = join(root, 'node_modules', '.bin');
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
  const env = { ...process.env, PATH: [bin, process.env['PATH']].join(delimiter), TMPDIR: dir };

  const withTexts = async <T>(
    faults: readonly Fault[],
    changed: (text: string, here: readonly Fault[]) => string,
    body: () => T,
  ): Promise<Awaited<T>> => {
    const paths = [...new Set(faults.map(({ path }) => path))];
    const texts = new Map(paths.map((path) => [path, readFileSync(join(copy, path), 'utf8')]));
    for (const [path, text] of texts) {
      const here = faults.filter((fault) => fault.path === path);
      writeFileSync(join(copy, path), changed(text, here));
    }
    try {
      return await body();
    } finally {
      for (const [path, text] of texts) writeFileSync(join(copy, path), text);
    }
  };

  return {
    failing: (faults, run) =>
      withTexts(faults, planted, async () => {
        const { code, results } = await runTests({ copy, bin, env }, run);
        if (code === 0) return [];
        const failed = failedOf(results, copy);
        return failed.length === 0 ? [NO_END] : failed;
      }),
    reach: async (faults, tests) => {
      const reachedPath = join(dir, 'reached');
      writeFileSync(reachedPath, '');
      const numbers = new Map(faults.map((fault, at) => [fault, at]));
      const probed = (text: string, here: readonly Fault[]): string =>
        withProbes(text, new Map(here.map((fault) => [fault, numbers.get(fault) ?? 0])), reachedPath);
      const times = await withTexts(faults, probed, () => timesOf({ copy, bin, env }, tests));
      const reached = readReached(reachedPath);
      return new Map(
        [...numbers].map(([fault, number]) => {
          const files = [...(reached.get(number) ?? [])].map((path) => relative(copy, path));
          return [fault, files.map((file) => ({ file, ms: times.get(file) ?? 0 }))];
        }),
      );
    },
    miscompiled: (faults) => withTexts(faults, planted, () => complaints({ copy, bin, env })),
    close: () => rmSync(dir, { recursive: true, force: true }),
  };
}

interface Place {
  copy: string;
  bin: string;
  env: NodeJS.ProcessEnv;
}

/** The part of vitest's JSON report that is read for each test file. */
interface Result {
  name: string;
  status: string;
  startTime: number;
  endTime: number;
}

/** A file that fails runs once more alone, because a busy machine can make a test too slow. */
async function timesOf(place: Place, tests: readonly string[]): Promise<Map<string, number>> {
  // Each file loads the sources again: otherwise only the first file of a worker would reach what runs while they load.
  const run = { bail: false, limitMs: WHOLE_LIMIT_MS, workers: 2, isolate: true };
  const { code, results } = await runTests(place, { ...run, tests });
  const failed = failedOf(results, place.copy);
  const again = code === 0 ? code : (await runTests(place, { ...run, tests: failed, workers: 1 })).code;
  if (again !== 0) throw new Error(`${failed.join(', ')} fails without a fault`);
  return new Map(
    results.map(({ name, startTime, endTime }) => [relative(place.copy, name), LOAD_MS + endTime - startTime]),
  );
}

function failedOf(results: readonly Result[], copy: string): string[] {
  return results.filter(({ status }) => status === 'failed').map(({ name }) => relative(copy, name));
}

/** `code` is null if the run had to be ended. */
async function runTests(
  { copy, bin, env }: Place,
  { tests, bail, limitMs, workers = 1, isolate = false }: TestRun & { isolate?: boolean },
): Promise<{ code: number | null; results: Result[] }> {
  const path = join(dirname(copy), 'results.json');
  rmSync(path, { force: true });
  const args = ['run', '--project', 'unit', '--reporter=json', `--outputFile.json=${path}`];
  args.push('--maxWorkers', String(workers), isolate ? '--isolate' : '--no-isolate');
  args.push(...(bail ? ['--bail', '1'] : []), ...tests);
  const child = spawn(join(bin, 'vitest'), args, {
    cwd: copy,
    env,
    stdio: 'ignore',
    // The process group includes the programs that tests start, so that they can be killed together.
    detached: true,
  });
  const timer = setTimeout(() => process.kill(-(child.pid ?? 0), 'SIGKILL'), limitMs);
  const [code] = (await once(child, 'close')) as [number | null];
  clearTimeout(timer);
  return { code, results: code === null ? [] : readResults(path) };
}

function readResults(path: string): Result[] {
  try {
    return (JSON.parse(readFileSync(path, 'utf8')) as { testResults: Result[] }).testResults;
  } catch {
    return [];
  }
}

function complaints({ copy, bin, env }: Place): string[] {
  const known = join(dirname(copy), 'types.json');
  const args = ['--noEmit', '--pretty', 'false', '--incremental', '--tsBuildInfoFile', known];
  const told = spawnSync(join(bin, 'tsc'), args, { cwd: copy, env, encoding: 'utf8' });
  return [...new Set([...told.stdout.matchAll(/^(\S+)\(\d+,\d+\): error/gm)].map(([, path]) => path ?? ''))];
}
