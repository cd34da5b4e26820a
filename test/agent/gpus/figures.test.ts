// The figures of the cards, from real and unusual answers of nvidia-smi.
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { openFigures } from '../../../agent/gpus/figures.ts';
import { GPUS_PER_MACHINE_MAX } from '../../../shared/limits.ts';
import { GPU_DIR } from '../../kit/engine.ts';

const dir = mkdtempSync(join(tmpdir(), 'figures-'));
afterAll(() => rmSync(dir, { recursive: true }));
let count = 0;

function script(text: string): string {
  count += 1;
  const file = join(dir, `smi-${count}`);
  writeFileSync(file, `#!/bin/sh\n${text}\n`);
  chmodSync(file, 0o755);
  return file;
}

/** An H100 at work, as a driver of version 550 prints it with `--format=csv,noheader,nounits`. */
const H100 =
  'GPU-5a1b2c3d-0000-4000-8000-000000000001, 0, 98, 61, 71312, 9775, 684.53, 64, 78, 1755, 2619, 0x0000000000000004';

test('an H100 at work has every figure', async () => {
  expect(await openFigures(script(`echo "${H100}"`))()).toEqual([
    {
      uuid: 'GPU-5a1b2c3d-0000-4000-8000-000000000001',
      index: 0,
      workload_id: null,
      utilization_percent: 98,
      memory_utilization_percent: 61,
      memory_used_mib: 71_312,
      memory_free_mib: 9_775,
      power_watts: 684.53,
      temperature_celsius: 64,
      memory_temperature_celsius: 78,
      sm_clock_mhz: 1_755,
      memory_clock_mhz: 2_619,
      throttle_reasons: 4,
    },
  ]);
});

test('a card in MIG mode has no utilisation, and each value that is no number or impossible is absent', async () => {
  const mig = 'GPU-1, 0, [N/A], [N/A], 512, 80000, 90.10, 33, [Not Supported], 345, 2619, [Unknown Error]';
  const odd = 'GPU-2, 1, 101, -1, 5, 5, ERR!, 99999, 40, 345, 2619, Not Active';
  const [first, second] = await openFigures(script(`echo "${mig}"; echo "${odd}"`))();
  expect(first).toMatchObject({
    utilization_percent: null,
    memory_used_mib: 512,
    memory_temperature_celsius: null,
    throttle_reasons: null,
  });
  expect(second).toMatchObject({
    utilization_percent: null,
    memory_utilization_percent: null,
    power_watts: null,
    temperature_celsius: null,
    memory_temperature_celsius: 40,
    throttle_reasons: null,
  });
});

test('a lost card is left out, and no more cards are reported than a machine may have', async () => {
  const lines = Array.from({ length: GPUS_PER_MACHINE_MAX + 1 }, (_, i) => `echo "GPU-${i}, ${i}, 1"`);
  const smi = script(`echo "[GPU is lost], 0, 1"; ${lines.join('; ')}`);
  const cards = await openFigures(smi)();
  expect(cards.map(({ uuid }) => uuid)).toEqual(Array.from({ length: GPUS_PER_MACHINE_MAX }, (_, i) => `GPU-${i}`));
});

test('a driver that knows only the new name of the throttle reasons is asked with it from then on', async () => {
  const asked = join(dir, 'asked');
  const smi = script(
    `echo "$1" >> ${asked}; case $1 in *throttle*) echo 'Field "clocks_throttle_reasons.active" is not a valid field to query.'; exit 2;; esac; echo "${H100}"`,
  );
  const read = openFigures(smi);
  expect((await read())[0]?.throttle_reasons).toBe(4);
  expect((await read())[0]?.throttle_reasons).toBe(4);
  const names = readFileSync(asked, 'utf8').trim().split('\n');
  expect(names.map((flag) => flag.split(',').at(-1))).toEqual([
    'clocks_throttle_reasons.active',
    'clocks_event_reasons.active',
    'clocks_event_reasons.active',
  ]);
});

test('a driver that knows neither name still gives the other figures', async () => {
  const smi = script(
    `case $1 in *reasons*) echo 'Field "x" is not a valid field to query.'; exit 2;; esac; echo "${H100.slice(0, H100.lastIndexOf(','))}"`,
  );
  expect((await openFigures(smi)())[0]).toMatchObject({ utilization_percent: 98, throttle_reasons: null });
});

test('a host without nvidia-smi has no card, and a driver error is an error', async () => {
  expect(await openFigures('/no/such/nvidia-smi')()).toEqual([]);
  const broken = script('echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18');
  await expect(openFigures(broken)()).rejects.toThrow('version mismatch');
});

test('the simulated nvidia-smi gives figures too', async () => {
  const cards = await openFigures(join(GPU_DIR, 'nvidia-smi'))();
  expect(cards).toHaveLength(8);
  expect(cards[3]).toMatchObject({ index: 3, utilization_percent: 0, power_watts: 71.2, throttle_reasons: 1 });
});
