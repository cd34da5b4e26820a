// Draws faults at random in the sources of rooms, plants each in a copy of the project, and prints which of them no test notices.
//
//   npm run mutants -- control-plane/money agent/runtime --seed 7 --count 20
//
// - A fault is one small change of the code or of its SQL: a condition negated, one side of && or || dropped, a boundary moved by one, a
//   statement dropped, a constant changed, a condition or a tie-break of a query dropped (faults.ts, sql-faults.ts).
// - The tool draws `--count` faults in each room, at most one in a line. The same seed draws the same faults from the same sources.
// - Nobody commits what the compiler refuses, so the tool draws another fault instead.
// - A first run without faults finds out which tests run the code of which fault (probes.ts): tests of the rooms' own folders, and those
//   that go through all rooms.
// - Then each fault runs alone against these tests: those of its own room first, the fast ones before the slow ones. Each processor has a
//   copy of the project with another fault.
// - Then all survivors together run against the whole unit project. Each test file that fails there runs against each survivor alone.
//   This repeats until all tests pass with the faults that are left.
// - `--quick` skips that part, and the slow tests of the part before. Tests that need containers or PostgreSQL never run.
//
// A survivor means that a test is missing, or that the code does nothing (drop it), or that no test can see the difference.
// Why this is not StrykerJS: version 10 runs here (with `tsconfigFile` set to a file that does not exist), but it treats SQL as plain
// text, cannot draw a sample, and has to run every test once for each room.
import { existsSync, globSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { type Rng, seededRng } from '../../../shared/rng.ts';
import { type Fault, faultsOf } from './faults.ts';
import { NO_END, type TimedFile, openTrial, type Trial, WHOLE_LIMIT_MS } from './trial.ts';

/** A run with a fault may take this many times as long as a run without one, and at least LIMIT_MS_MIN. */
const SLOWER_MAX = 4;
const LIMIT_MS_MIN = 60_000;
const LONG_MS_MIN = 20_000;
/** One run has tests that take this long together: an early failure saves all later runs. */
const ROUND_MS_MAX = 10_000;
/** A quick hunt gives each fault tests of this length. */
const QUICK_MS_MAX = 90_000;
/** These tests go through all rooms of the control plane: the public API, the operator's routes and the metrics. */
const WHOLE_SERVICE = ['test/contract', 'test/control-plane/admin', 'test/control-plane/gauges.store.test.ts'];
/** The table shows at most this many characters of the replaced text. */
const WAS_CHARS_MAX = 90;

export interface Hunt {
  root: string;
  /** Folders with sources, relative to `root`. */
  rooms: readonly string[];
  seed: number;
  /** How many faults are drawn in each room. */
  count: number;
  quick: boolean;
  write(line: string): void;
}

export interface Verdict {
  fault: Fault;
  /** The test file that fails; undefined if none does. */
  caughtBy: string | undefined;
}

export async function hunt({ root, rooms, seed, count, quick, write }: Hunt): Promise<Verdict[]> {
  const first = openTrial(root);
  const trials: [Trial, ...Trial[]] = [
    first,
    ...Array.from({ length: availableParallelism() - 1 }, () => openTrial(root)),
  ];
  try {
    const shuffled = rooms.map((room) => shuffledApart(faultsIn(root, room), seededRng(seed)));
    const drawn = await compiling(first, shuffled, count);
    const mirrors = rooms.map((room) => mirrorOf(root, room));
    const whole = rooms.some((room) => room.startsWith('control-plane')) ? WHOLE_SERVICE : [];
    const tests = [...new Set([...mirrors, ...whole])].filter((folder) => existsSync(join(root, folder)));
    const reached = await first.reach(drawn, tests);
    const verdicts = drawn.map((fault): Verdict => ({ fault, caughtBy: undefined }));
    await sideBySide(trials, verdicts, async (trial, verdict) => {
      const mirror = mirrorOf(root, dirname(verdict.fault.path));
      const rounds = roundsOf(reached.get(verdict.fault) ?? [], { mirror, quick });
      verdict.caughtBy = await firstFailing(trial, verdict.fault, rounds);
      write(lineOf(verdict));
    });
    if (!quick) await meetAllTests(trials, verdicts, (verdict) => write(lineOf(verdict)));
    const caught = verdicts.filter(({ caughtBy }) => caughtBy !== undefined).length;
    write(`${caught} of ${verdicts.length} caught (${Math.round((100 * caught) / Math.max(verdicts.length, 1))} %)`);
    return verdicts;
  } finally {
    for (const trial of trials) trial.close();
  }
}

function faultsIn(root: string, room: string): Fault[] {
  return globSync(`${room}/**/*.ts`, { cwd: root })
    .toSorted()
    .flatMap((path) => faultsOf(path, readFileSync(join(root, path), 'utf8')));
}

/** All faults in random order, without those that touch an earlier one: the others can be planted together. */
function shuffledApart(all: readonly Fault[], rng: Rng): Fault[] {
  const shuffled = all.map((fault) => ({ fault, rank: rng.float() })).toSorted((one, other) => one.rank - other.rank);
  const apart: Fault[] = [];
  for (const { fault } of shuffled) if (!apart.some((other) => touch(fault, other))) apart.push(fault);
  return apart;
}

function touch(one: Fault, other: Fault): boolean {
  if (one.path !== other.path) return false;
  return one.line === other.line || (one.start <= other.end && other.start <= one.end);
}

/** The first `count` faults of each room that compile. The rooms are compiled together, because the compiler reads all of them anyway. */
async function compiling(trial: Trial, rooms: readonly Fault[][], count: number): Promise<Fault[]> {
  const queues = rooms.map((faults) => ({ rest: [...faults], found: [] as Fault[] }));
  for (;;) {
    const next = queues.map(({ rest, found }) => rest.splice(0, count - found.length));
    if (next.flat().length === 0) return queues.flatMap(({ found }) => found);
    const refused = await refusedByTypes(trial, next.flat());
    queues.forEach(({ found }, room) => found.push(...(next[room] ?? []).filter((fault) => !refused.has(fault))));
  }
}

/** Compiles one fault of each file at a time, so that the file in a message names the fault. */
async function refusedByTypes(trial: Trial, faults: readonly Fault[]): Promise<Set<Fault>> {
  const refused = new Set<Fault>();
  for (let rest = [...faults]; rest.length > 0;) {
    const batch = rest.filter((fault, at) => rest.findIndex(({ path }) => path === fault.path) === at);
    rest = rest.filter((fault) => !batch.includes(fault));
    for (const fault of await refusedOf(trial, batch)) refused.add(fault);
  }
  return refused;
}

/** If the compiler names a file without a fault, any fault may be the reason, so each half is compiled alone. */
async function refusedOf(trial: Trial, batch: readonly Fault[]): Promise<Fault[]> {
  const complained = await trial.miscompiled(batch);
  if (complained.every((path) => batch.some((fault) => fault.path === path))) {
    return batch.filter(({ path }) => complained.includes(path));
  }
  if (batch.length === 1) return [...batch];
  const middle = Math.ceil(batch.length / 2);
  return [...(await refusedOf(trial, batch.slice(0, middle))), ...(await refusedOf(trial, batch.slice(middle)))];
}

/** Returns the nearest folder below test/ that mirrors the room, for example test/control-plane/rental. */
function mirrorOf(root: string, room: string): string {
  for (let folder = room; folder !== '.'; folder = dirname(folder)) {
    if (existsSync(join(root, 'test', folder))) return join('test', folder);
  }
  throw new Error(`${room} has no tests of its own`);
}

interface Round {
  tests: string[];
  limitMs: number;
}

/** The tests of the own folder come first, and then the fast ones. A quick hunt leaves out what is slow and what is over the limit. */
function roundsOf(files: readonly TimedFile[], { mirror, quick }: { mirror: string; quick: boolean }): Round[] {
  const rank = ({ file, ms }: TimedFile): number => (file.startsWith(`${mirror}/`) ? 0 : LONG_MS_MIN) + ms;
  const rounds: Round[] = [];
  let wholeMs = 0;
  let roundMs = Infinity;
  for (const { file, ms } of files.toSorted((one, other) => rank(one) - rank(other))) {
    if (quick && (ms > LONG_MS_MIN || wholeMs + ms > QUICK_MS_MAX)) continue;
    wholeMs += ms;
    roundMs += ms;
    if (roundMs > ROUND_MS_MAX) {
      rounds.push({ tests: [], limitMs: LIMIT_MS_MIN });
      roundMs = ms;
    }
    const round = rounds.at(-1);
    round?.tests.push(file);
    if (round !== undefined) round.limitMs = Math.max(LIMIT_MS_MIN, SLOWER_MAX * roundMs);
  }
  return rounds;
}

async function firstFailing(trial: Trial, fault: Fault, rounds: readonly Round[]): Promise<string | undefined> {
  for (const { tests, limitMs } of rounds) {
    const [file] = await trial.failing([fault], { tests, bail: true, limitMs });
    if (file !== undefined) return file;
  }
  return undefined;
}

/** Each trial takes the next verdict as soon as it is free. */
async function sideBySide(
  trials: readonly Trial[],
  verdicts: readonly Verdict[],
  judge: (trial: Trial, verdict: Verdict) => Promise<void>,
): Promise<void> {
  const waiting = [...verdicts];
  const judgeAll = async (trial: Trial): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) await judge(trial, next);
  };
  await Promise.all(trials.map(judgeAll));
}

/** Runs all tests with all survivors at once, then finds out which fault makes which file fail. */
async function meetAllTests(
  trials: readonly [Trial, ...Trial[]],
  verdicts: readonly Verdict[],
  tell: (verdict: Verdict) => void,
): Promise<void> {
  const limitMs = WHOLE_LIMIT_MS;
  for (;;) {
    const left = verdicts.filter(({ caughtBy }) => caughtBy === undefined);
    if (left.length === 0) return;
    const faults = left.map(({ fault }) => fault);
    const failing = await trials[0].failing(faults, { tests: [], bail: false, limitMs, workers: trials.length });
    if (failing.length === 0) return;
    const tests = failing.includes(NO_END) ? [] : failing;
    await sideBySide(trials, left, async (trial, verdict) => {
      [verdict.caughtBy] = await trial.failing([verdict.fault], { tests, bail: true, limitMs });
      if (verdict.caughtBy !== undefined) tell(verdict);
    });
    // These files fail only with several faults at once, so they catch no single fault.
    if (left.every(({ caughtBy }) => caughtBy === undefined)) return;
  }
}

function lineOf({ fault, caughtBy }: Verdict): string {
  const { path, line, what, was } = fault;
  const verdict = caughtBy === undefined ? 'SURVIVED' : `caught by ${caughtBy}`;
  return `${path}:${line}  ${what}: ${was.length > WAS_CHARS_MAX ? `${was.slice(0, WAS_CHARS_MAX)}...` : was}  ${verdict}`;
}

if (import.meta.main) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      seed: { type: 'string', default: '1' },
      count: { type: 'string', default: '20' },
      quick: { type: 'boolean', default: false },
    },
  });
  const rooms = positionals.map((room) => room.replace(/\/$/, ''));
  if (rooms.length === 0) throw new Error('name the rooms: npm run mutants -- control-plane/money agent/runtime');
  await hunt({
    root: resolve(import.meta.dirname, '../../..'),
    rooms,
    seed: Number(values.seed),
    count: Number(values.count),
    quick: values.quick,
    write: console.log,
  });
}
