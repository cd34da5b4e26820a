// The scripted nvidia-smi answers like the real one, with the shell of the machine and with busybox.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { runProgram } from './processes.ts';

const PROGRAM = join(import.meta.dirname, 'gpu/nvidia-smi');
const dir = mkdtempSync(join(tmpdir(), 'gpu-'));
afterAll(() => rmSync(dir, { recursive: true }));

const smi = (args: string[], env: Record<string, string> = {}): Promise<string> =>
  runProgram({ command: PROGRAM, args, env: { FAKE_GPU_COUNT: '2', ...env } });

test('fields come in the order of the query, and a field no card knows is [N/A]', async () => {
  const query = '--query-gpu=index, name,memory.total,pci.bus_id,fan.speed';
  expect(await smi([query, '--format=csv,noheader,nounits'])).toBe(
    '0, NVIDIA H100 80GB HBM3, 81559, 00000000:10:00.0, [N/A]\n1, NVIDIA H100 80GB HBM3, 81559, 00000000:11:00.0, [N/A]\n',
  );
});

test('header and units are there unless taken out', async () => {
  const lines = 'index, memory.total [MiB], power.draw [W]\n1, 81559 MiB, 71.20 W\n';
  expect(await smi(['--query-gpu=index,memory.total,power.draw', '--format=csv', '-i', '1'])).toBe(lines);
});

test('cards are chosen by index, UUID and bus id, and none is an error', async () => {
  const [first] = (await smi(['--query-gpu=uuid', '--format=csv,noheader'])).split('\n');
  expect(await smi(['-L', `--id=${first}`])).toBe(`GPU 0: NVIDIA H100 80GB HBM3 (UUID: ${first})\n`);
  expect(await smi(['-L', '--id=00000000:11:00.0'])).toMatch(/^GPU 1: /);
  await expect(smi(['-L', '--id=7'])).rejects.toThrow('ended with 6:\nNo devices were found');
});

test('machines with other seeds have other cards; the model is free', async () => {
  const [one, two] = await Promise.all([
    smi(['-L']),
    smi(['-L'], { FAKE_GPU_SEED: '2', FAKE_GPU_NAME: 'NVIDIA A100' }),
  ]);
  expect(two).toContain('NVIDIA A100');
  expect(one.match(/GPU-\S+/g)).not.toEqual(two.match(/GPU-\S+/g));
});

test('a table beside it says everything about the cards', async () => {
  const table = join(dir, 'gpus');
  writeFileSync(table, 'index,uuid,name,fan.speed\n0,GPU-a,Card A,12\n');
  const query = ['--query-gpu=uuid,fan.speed,memory.total', '--format=csv,noheader,nounits'];
  expect(await smi(query, { FAKE_GPU_TABLE: table })).toBe('GPU-a, 12, [N/A]\n');
});

test('compute processes come from a file', async () => {
  const query = ['--query-compute-apps=gpu_uuid,pid', '--format=csv,noheader,nounits'];
  expect(await smi(query)).toBe('');
  writeFileSync(join(dir, 'processes'), 'GPU-a,4711,1024\n');
  expect(await smi(query, { FAKE_GPU_PROCESSES: join(dir, 'processes') })).toBe('GPU-a, 4711\n');
});

test('a card can be lost, and say other things than it did', async () => {
  const [first = '', second = ''] = (await smi(['--query-gpu=uuid', '--format=csv,noheader'])).split('\n');
  const faults = join(dir, 'faults');
  writeFileSync(faults, `${first},lost\n${second},remapped_rows.pending,Yes\n`);
  const query = ['--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure', '--format=csv,noheader'];
  expect(await smi(query)).toBe(`${first}, No, No\n${second}, No, No\n`);
  expect(await smi(query, { FAKE_GPU_FAULTS: faults })).toBe(`${second}, Yes, No\n`);
});

test('an unknown flag is refused, and no flag prints a screen for people', async () => {
  await expect(smi(['--frobnicate'])).rejects.toThrow('Invalid combination');
  expect(await smi([])).toContain('NVIDIA H100 80GB HBM3');
});
