// Makes a copy of the project, plants faults in it and runs tests there. The working tree is never touched.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, relative } from 'node:path';
import { type Fault, planted } from './faults.ts';

/** Stands for the failed files if the run was killed or ended without a report. */
export const NO_END = '(no end)';
/** The limit of a run of all tests. */
export const WHOLE_LIMIT_MS = 60 * 60_000;

export interface Trial {
  /** Resolves with the test files that fail with these faults, which must not overlap. A run over `limitMs` counts as failed. */
  failing(faults: readonly Fault[], run: TestRun): Promise<string[]>;
  /** Resolves with the time that each test file takes without a fault. Throws if one of them fails. */
  times(tests: readonly string[]): Promise<Map<string, number>>;
  /** Resolves with the paths in which the compiler finds an error with these faults. */
  miscompiled(faults: readonly Fault[]): Promise<string[]>;
  close(): void;
}

export interface TestRun {
  /** Files or folders. If the list is empty, all tests of the unit project run. */
  tests: readonly string[];
  /** The run ends with the first failure. */
  bail: boolean;
  limitMs: number;
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

  const withFaults = async <T>(faults: readonly Fault[], body: () => T): Promise<Awaited<T>> => {
    const paths = [...new Set(faults.map(({ path }) => path))];
    const texts = new Map(paths.map((path) => [path, readFileSync(join(copy, path), 'utf8')]));
    for (const [path, text] of texts) {
      const here = faults.filter((fault) => fault.path === path);
      writeFileSync(join(copy, path), planted(text, here));
    }
    try {
      return await body();
    } finally {
      for (const [path, text] of texts) writeFileSync(join(copy, path), text);
    }
  };

  return {
    failing: (faults, run) =>
      withFaults(faults, async () => {
        const { code, results } = await runTests({ copy, bin, env }, run);
        if (code === 0) return [];
        const failed = results.filter(({ status }) => status === 'failed');
        return failed.length === 0 ? [NO_END] : failed.map(({ name }) => relative(copy, name));
      }),
    times: async (tests) => {
      const { code, results } = await runTests({ copy, bin, env }, { tests, bail: true, limitMs: WHOLE_LIMIT_MS });
      const failed = results.filter(({ status }) => status === 'failed').map(({ name }) => relative(copy, name));
      if (code !== 0) throw new Error(`${failed.join(', ')} fails without a fault`);
      return new Map(results.map(({ name, startTime, endTime }) => [relative(copy, name), endTime - startTime]));
    },
    miscompiled: (faults) => withFaults(faults, () => complaints({ copy, bin, env })),
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

/** `code` is null if the run had to be ended. */
async function runTests(
  { copy, bin, env }: Place,
  { tests, bail, limitMs }: TestRun,
): Promise<{ code: number | null; results: Result[] }> {
  const path = join(dirname(copy), 'results.json');
  rmSync(path, { force: true });
  const args = ['run', '--project', 'unit', '--maxWorkers', '1', '--reporter=json', `--outputFile.json=${path}`];
  const child = spawn(join(bin, 'vitest'), [...args, ...(bail ? ['--bail', '1'] : []), ...tests], {
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
