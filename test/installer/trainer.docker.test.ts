// The trainer image's own tests, in the language that it is written in.
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { capture } from '../kit/capture.ts';
import { requireProgram } from '../kit/setup.ts';

const FOLDER = join(import.meta.dirname, '../../installer/trainer');

test('the tests of the trainer pass', async () => {
  const run = await capture([requireProgram('python3'), '-B', '-m', 'unittest', 'discover', FOLDER]);
  expect(run.stderr).toMatch(/Ran \d+ tests[\s\S]*OK/);
  expect(run.code).toBe(0);
});
