// What a real H200 with driver 580 has answered, idle and while a program computed, through the agent's own readers (README of h200/).
import { chmodSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { openFigures } from '../../../agent/gpus/figures.ts';
import { openKernelLog } from '../../../agent/gpus/kernel-log.ts';
import { readGpus, readUnfit } from '../../../agent/gpus/nvidia-smi.ts';
import { gpusDiffer } from '../../../agent/gpus/visible.ts';
import { readDriverLine } from '../../../agent/gpus/xids.ts';

const RECORDED = join(import.meta.dirname, 'h200');
const UUID = 'GPU-930058f9-c2ba-c0db-bcde-b771ea993f83';
const CARD = {
  uuid: UUID,
  index: 0,
  name: 'NVIDIA H200',
  memory_mib: 143_771,
  driver_version: '580.159.04',
  bus_id: '00000000:00:06.0',
};
const dir = mkdtempSync(join(tmpdir(), 'h200-'));
afterAll(() => rmSync(dir, { recursive: true }));

/** An nvidia-smi that gives the recorded answer to each recorded command line, and knows no other one. */
function replay(state: 'idle' | 'busy'): string {
  const file = join(dir, state);
  const find = `$0 == wanted { found = 1; next } found && /^## / { exit } found { print } END { exit found ? 0 : 2 }`;
  writeFileSync(file, `#!/bin/sh\nexec awk -v wanted="## nvidia-smi $*" '${find}' ${RECORDED}/${state}.txt\n`);
  chmodSync(file, 0o755);
  return file;
}

/** The answers of `smi` after an edit by sed. */
function changed(smi: string, edit: string): string {
  const file = join(dir, `changed-${Math.random()}`);
  writeFileSync(file, `#!/bin/sh\n${smi} "$@" | sed '${edit}'\n`);
  chmodSync(file, 0o755);
  return file;
}

test('an idle card is listed, is fit, and reports all its figures', async () => {
  expect(await readGpus(replay('idle'), () => [])).toEqual([{ ...CARD, foreign_use: false }]);
  expect([...(await readUnfit(replay('idle')))]).toEqual([]);
  expect(await openFigures(replay('idle'))()).toEqual([
    {
      uuid: UUID,
      index: 0,
      workload_id: null,
      utilization_percent: 0,
      memory_utilization_percent: 0,
      memory_used_mib: 0,
      memory_free_mib: 143_156,
      power_watts: 81.54,
      temperature_celsius: 42,
      memory_temperature_celsius: 43,
      sm_clock_mhz: 345,
      memory_clock_mhz: 3_201,
      throttle_reasons: 1,
    },
  ]);
});

test('MIG mode and a bad row of memory would be seen in the same answers', async () => {
  const mig = await readUnfit(changed(replay('idle'), 's/Disabled/Enabled/'));
  expect([...mig]).toEqual([[UUID, `MIG mode is on: nvidia-smi -i ${UUID} -mig 0`]]);
  const worn = await readUnfit(changed(replay('idle'), 's/No, No/No, Yes/'));
  expect([...worn]).toEqual([[UUID, 'bad memory rows cannot be replaced any more']]);
});

test('a card that a program of the host uses is foreign, and its figures show the work', async () => {
  const smi = replay('busy');
  // The recorded process has ended, so its number is that of this process here.
  const here = changed(smi, `s/, 622$/, ${process.pid}/`);
  expect(await readGpus(here, () => [])).toEqual([{ ...CARD, foreign_use: true }]);
  expect(await readGpus(here, () => [''])).toEqual([{ ...CARD, foreign_use: false }]);
  const [figures] = await openFigures(smi)();
  expect(figures).toMatchObject({ utilization_percent: 99, memory_used_mib: 21_491, throttle_reasons: 4 });
});

test('a fault of a tenant in the log of the driver is no fault of the card', async () => {
  const log = openKernelLog(join(RECORDED, 'kernel.txt'));
  const messages = (await log.read()).flatMap(({ text }) => readDriverLine(text) ?? []);
  await log.close();
  expect(messages).toEqual([{ kind: 'loaded' }, { kind: 'card', bus_id: '0000:00:06', uuid: UUID }]);
});

test('the file of the driver tells a container which card it sees', () => {
  const root = join(dir, 'root');
  const folder = join(root, 'proc/driver/nvidia/gpus/0000:00:06.0');
  mkdirSync(join(root, 'dev'), { recursive: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(root, 'dev/nvidia0'), '');
  cpSync(join(RECORDED, 'information.txt'), join(folder, 'information'));
  expect(gpusDiffer([UUID], root)).toBeUndefined();
  expect(gpusDiffer(['GPU-other'], root)).toContain(`sees ${UUID}`);
});
