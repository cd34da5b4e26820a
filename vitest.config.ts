// One project per test lane; which lanes run where, and what they need, is decided by test/run.ts.
import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { LongestFirst } from './test/kit/sequence.ts';

const DATABASE_TESTS = ['test/**/*.store.test.ts', 'test/**/*.pg.test.ts'];
const DOCKER_TESTS = ['test/**/*.docker.test.ts'];
const E2E_TESTS = ['test/e2e/**/*.test.ts'];
/** What only reads the sources. */
const WALLS = ['test/house.test.ts', 'test/contract/spec-rows.test.ts'];

const SETUP = ['test/kit/seed.ts'];
const COMPILED = 'test/kit/compile-cache.ts';
const AGENT_BUILT = 'test/kit/agent-build.ts';

/**
 * The most time of a test, and of a hook. It ends only what hangs, so it is several times what the slowest needs: other work on the machine can
 * make each test three times as long. A test with full counts (`npm run soak`) may take as long as it needs.
 */
const patience = (timeoutMs: number): { testTimeout: number; hookTimeout: number } => {
  const most = process.env['SOAK'] === '1' ? 30 * 60_000 : timeoutMs;
  return { testTimeout: most, hookTimeout: most };
};

/** Node loads the sources itself, as it does in production. */
const NATIVE = { experimental: { viteModuleRunner: false, nodeLoader: false } };
/**
 * The files of a worker also share what they have loaded: a store test would otherwise spend a third of its time on loading, and an engine test a
 * second of a processor. A test that changes what all modules of the process see must put it back.
 */
const SHARED = { ...NATIVE, isolate: false };
/**
 * The control plane runs with the same flag. V8 decides for good that objects of some kind are made among the old ones, so a test of memory cannot
 * change that after other tests of its worker.
 */
const V8_FLAGS = ['--no-allocation-site-pretenuring'];

/**
 * The longest wait of `expect.poll`. A processor that others use too makes a page or an engine late by seconds: only what never comes fails.
 * The console reads costs again every 30 seconds, so a longer wait would hide that an event did not reach it.
 */
const polled = (timeout: number): { poll: { timeout: number } } => ({ poll: { timeout } });

/** Files at a time that only compute. Vitest by itself keeps a processor free for its own work, of which there is next to none. */
const COMPUTING = availableParallelism();
/** Files at a time that also wait, for timers, databases and other programs. With one file for each processor, a sixth of the time is idle. */
const WAITING = COMPUTING + 1;

export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    projects: [
      { test: { name: 'walls', include: WALLS, maxWorkers: COMPUTING, ...NATIVE, ...patience(60_000) } },
      {
        test: {
          name: 'unit',
          globalSetup: [COMPILED, AGENT_BUILT],
          setupFiles: SETUP,
          include: ['test/**/*.test.ts'],
          exclude: ['test/**/*.pg.test.ts', ...DOCKER_TESTS, ...E2E_TESTS, ...WALLS],
          maxWorkers: WAITING,
          expect: polled(15_000),
          execArgv: V8_FLAGS,
          ...SHARED,
          ...patience(120_000),
        },
      },
      {
        test: {
          name: 'postgres',
          setupFiles: SETUP,
          include: DATABASE_TESTS,
          globalSetup: [COMPILED, 'test/kit/postgres.ts'],
          maxWorkers: WAITING,
          expect: polled(15_000),
          execArgv: V8_FLAGS,
          ...SHARED,
          ...patience(120_000),
        },
      },
      {
        test: {
          name: 'docker',
          globalSetup: [COMPILED, AGENT_BUILT],
          setupFiles: SETUP,
          include: DOCKER_TESTS,
          exclude: E2E_TESTS,
          maxWorkers: WAITING,
          expect: polled(20_000),
          ...SHARED,
          ...patience(300_000),
        },
      },
      {
        test: {
          name: 'e2e',
          globalSetup: [COMPILED, AGENT_BUILT, 'test/kit/console-build.ts'],
          setupFiles: SETUP,
          include: E2E_TESTS,
          maxWorkers: WAITING,
          expect: polled(20_000),
          ...SHARED,
          ...patience(600_000),
        },
      },
    ],
  },
});
