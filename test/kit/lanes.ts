// The lanes of `npm test`: what each runs, what it needs, and how one is run, ended and cleaned up after.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { cleanUp, RUN_MARKER, type Run } from './leaks.ts';
import { countTests, failuresOf, type Failure, type TestCounts } from './report.ts';
import type { ProgramName } from './setup.ts';

export interface Lane {
  name: string;
  /** A tool of node_modules/.bin and its arguments. */
  command: readonly string[];
  /** The command is vitest: its tests are counted. */
  counts?: boolean;
  /** Skipped without them. */
  needs?: readonly ProgramName[];
  /** Installed if that is possible; a few of its tests fail without them, and say so. */
  wants?: readonly ProgramName[];
  /** Starts containers and namespaces: Linux, as root. */
  engine?: boolean;
}

export interface Outcome {
  lane: string;
  verdict: 'passed' | 'failed' | 'skipped';
  seconds: number;
  tests: TestCounts;
  failures?: Failure[];
  note?: string;
}

const ENGINE: readonly ProgramName[] = [
  'dockerd',
  'docker-registry',
  'iptables',
  'nft',
  'ip',
  'busybox',
  'curl',
  'ssh',
  'mkfs.btrfs',
  'python3',
];

export const LANES: readonly Lane[] = [
  { name: 'types', command: ['tsc'] },
  { name: 'page-types', command: ['tsc', '-p', 'agent/holder/page'] },
  { name: 'console-types', command: ['tsc', '-p', 'control-plane/console/web'] },
  { name: 'lint', command: ['oxlint', '--type-aware', '--deny-warnings'] },
  { name: 'format', command: ['oxfmt', '--check', '.'] },
  vitest('walls'),
  { name: 'dead-code', command: ['knip', '--no-progress'] },
  { ...vitest('unit'), wants: ['openssl', 'shellcheck'] },
  { ...vitest('postgres'), needs: ['initdb'], wants: ['openssl'] },
  {
    // The files of both projects wait for other programs much of their time, so they fill each other's pauses.
    ...vitest('engine', ['docker', 'e2e']),
    needs: [...ENGINE, 'docker-compose', 'chromium', 'firefox-esr'],
    wants: ['openssl', 'dpkg-deb', 'dbclient', 'dropbearkey', 'systemd'],
    engine: true,
  },
];

const ROOT = resolve(import.meta.dirname, '../..');
const NO_TESTS: TestCounts = { passed: 0, failed: 0, skipped: 0 };

/** The lane in progress, for the signal handler. */
const current: { child?: ChildProcess; run?: Run; isStopping?: boolean } = {};

/** Runs one lane to its end with its output shown. What it leaves behind is ended, named, and makes it fail. */
export async function runLane(
  lane: Lane,
  missing: readonly ProgramName[],
  env: Record<string, string>,
): Promise<Outcome> {
  const reason = whyNot(lane, missing);
  if (reason !== undefined) return { lane: lane.name, verdict: 'skipped', seconds: 0, tests: NO_TESTS, note: reason };
  const startedMs = performance.now();
  const run = newRun();
  const resultsPath = join(run.dir, 'results.json');
  const code = await runCommand(
    lane.counts ? [...lane.command, `--outputFile.json=${resultsPath}`] : lane.command,
    run,
    env,
  );
  const report = lane.counts ? readOrEmpty(resultsPath) : '';
  const tests = lane.counts ? countTests(report, code) : NO_TESTS;
  const left = await cleanUp(run);
  for (const line of left) console.log(`left behind: ${line}`);
  const note = whatIsWrong(lane, tests, left.length);
  return {
    lane: lane.name,
    verdict: code === 0 && note === undefined ? 'passed' : 'failed',
    seconds: (performance.now() - startedMs) / 1000,
    tests,
    failures: failuresOf(report),
    ...(note === undefined ? {} : { note }),
  };
}

/** Ctrl-C and SIGTERM end the lane's whole process group, then whatever else carries the run's mark. */
export function stopLaneOnSignal(): void {
  const stop = (signal: NodeJS.Signals): void => {
    current.isStopping = true;
    void (async () => {
      console.log(`\n${signal}: ending the running lane`);
      if (current.child?.pid !== undefined) await endGroup(current.child.pid);
      if (current.run !== undefined) await cleanUp(current.run);
      process.exit(130);
    })();
  };
  process.once('SIGINT', stop).once('SIGTERM', stop).once('SIGHUP', stop);
}

/** Runs projects of vitest.config.ts; left out, the one of the lane's name. */
function vitest(name: string, projects: readonly string[] = [name]): Lane {
  const chosen = projects.flatMap((project) => ['--project', project]);
  return { name, command: ['vitest', 'run', ...chosen, '--reporter=default', '--reporter=json'], counts: true };
}

function whyNot(lane: Lane, missing: readonly ProgramName[]): string | undefined {
  if (lane.engine && (process.platform !== 'linux' || process.getuid?.() !== 0)) return 'it needs Linux and root';
  const absent = lane.needs?.filter((name) => missing.includes(name)) ?? [];
  return absent.length === 0 ? undefined : `${absent.join(', ')} not found, and only root on Debian can install it`;
}

function whatIsWrong(lane: Lane, tests: TestCounts, leftCount: number): string | undefined {
  if (leftCount > 0) return `it left ${leftCount} processes or mounts behind`;
  return lane.counts && tests.passed === 0 ? 'no test passed' : undefined;
}

function newRun(): Run {
  const dir = mkdtempSync(join(tmpdir(), 'gpu-test-'));
  chmodSync(dir, 0o755); // the user postgres keeps its data below it
  return { id: dir, dir };
}

async function runCommand(command: readonly string[], run: Run, env: Record<string, string>): Promise<number | null> {
  const [program = '', ...args] = command;
  const bin = join(ROOT, 'node_modules', '.bin');
  const path = [bin, process.env['PATH'], '/usr/sbin', '/sbin'].join(delimiter);
  const child = spawn(join(bin, program), args, {
    cwd: ROOT,
    env: { ...process.env, ...env, PATH: path, TMPDIR: run.dir, [RUN_MARKER]: run.id },
    stdio: ['ignore', 'inherit', 'inherit'],
    // A group of its own: the terminal's Ctrl-C reaches only us, and we end the group in order.
    detached: true,
  });
  Object.assign(current, { child, run });
  const [code] = (await once(child, 'close')) as [number | null];
  delete current.child;
  // The signal handler has taken over and ends this process: no further lane may begin.
  if (current.isStopping) await new Promise(() => undefined);
  return code;
}

async function endGroup(pid: number): Promise<void> {
  const child = current.child;
  const ended = child === undefined ? Promise.resolve() : once(child, 'close');
  signalGroup(pid, 'SIGTERM');
  const killed = setTimeout(() => signalGroup(pid, 'SIGKILL'), 5000);
  await ended;
  clearTimeout(killed);
}

function signalGroup(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal);
  } catch {
    // The group ended by itself.
  }
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
