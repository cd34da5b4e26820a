// One project per test lane; which lanes run where, and what they need, is decided by test/run.ts.
import { defineConfig } from 'vitest/config';

const DATABASE_TESTS = ['test/**/*.store.test.ts', 'test/**/*.pg.test.ts'];
const DOCKER_TESTS = ['test/**/*.docker.test.ts'];
const E2E_TESTS = ['test/e2e/**/*.test.ts'];
/** What only reads the sources. */
const WALLS = ['test/house.test.ts', 'test/contract/spec-rows.test.ts'];

const SETUP = ['test/kit/seed.ts'];

/** With full counts (`npm run soak`) a test takes as long as it takes. */
const patience = (timeoutMs: number): number => (process.env['SOAK'] === '1' ? 30 * 60_000 : timeoutMs);

export default defineConfig({
  test: {
    projects: [
      { test: { name: 'walls', include: WALLS } },
      {
        test: {
          name: 'unit',
          setupFiles: SETUP,
          include: ['test/**/*.test.ts'],
          exclude: ['test/**/*.pg.test.ts', ...DOCKER_TESTS, ...E2E_TESTS, ...WALLS],
          testTimeout: patience(5_000),
        },
      },
      {
        test: {
          name: 'postgres',
          setupFiles: SETUP,
          include: DATABASE_TESTS,
          globalSetup: ['test/kit/global-setup.ts'],
          testTimeout: patience(30_000),
        },
      },
      // These share one engine and real ports: one file after another.
      {
        test: {
          name: 'docker',
          setupFiles: SETUP,
          include: DOCKER_TESTS,
          exclude: E2E_TESTS,
          fileParallelism: false,
          testTimeout: patience(120_000),
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          name: 'e2e',
          setupFiles: SETUP,
          include: E2E_TESTS,
          fileParallelism: false,
          testTimeout: patience(300_000),
          hookTimeout: 180_000,
        },
      },
    ],
  },
});
