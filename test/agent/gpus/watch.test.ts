// What is told of the GPUs while nvidia-smi fails, once and for longer.
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { type GpuReading, openGpuWatch } from '../../../agent/gpus/watch.ts';
import { createLog } from '../../../shared/log.ts';

const WORKS = 'case $1 in *apps*) ;; *) echo "GPU-1, 0, X, 1, 1";; esac';
const FAILS = 'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18';
const dir = mkdtempSync(join(tmpdir(), 'watch-'));
afterAll(() => rmSync(dir, { recursive: true }));

/** What is told at each reading, and how often it is logged, when nvidia-smi is each of `scripts` in turn. */
async function told(...scripts: string[]): Promise<{ readings: string[]; errors: number }> {
  const file = join(dir, 'nvidia-smi');
  let errors = 0;
  const log = createLog('agent', 'silent');
  log.error = () => (errors += 1);
  const watch = openGpuWatch(file, log);
  const readings: string[] = [];
  for (const script of scripts) {
    writeFileSync(file, `#!/bin/sh\n${script}\n`);
    chmodSync(file, 0o755);
    readings.push(inWords(await watch.read([])));
  }
  return { readings, errors };
}

function inWords({ gpus, gpu_error: error }: GpuReading): string {
  return error === '' ? `${gpus.length} GPU` : `${gpus.length} GPU, ${error.includes('mismatch') ? 'mismatch' : error}`;
}

test('one failure is passed over, a second one in a row takes the GPUs away, and they come back', async () => {
  expect(await told(WORKS, FAILS, WORKS, FAILS, FAILS, FAILS, WORKS)).toEqual({
    readings: ['1 GPU', '1 GPU', '1 GPU', '1 GPU', '0 GPU, mismatch', '0 GPU, mismatch', '1 GPU'],
    errors: 1,
  });
});

test('a failure before anything is known is told at once', async () => {
  expect((await told(FAILS, WORKS)).readings).toEqual(['0 GPU, mismatch', '1 GPU']);
});
