// The reported GPUs while nvidia-smi fails or omits a card, once and for longer, and after errors in the kernel log.
import { appendFileSync, chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { openKernelLog } from '../../../agent/gpus/kernel-log.ts';
import { type GpuReading, type GpuWatch, openGpuWatch } from '../../../agent/gpus/watch.ts';
import { DISK } from '../../../agent/host/state.ts';
import { createLog } from '../../../shared/log.ts';
import { eventually } from '../../kit/processes.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';

const CARDS = { A: 'GPU-1, 0, X, 1, 1, 00000000:30:00.0', B: 'GPU-2, 1, X, 1, 1, 00000000:31:00.0' };
const lists = (...cards: string[]): string =>
  `case $1 in *uuid,index*) ${cards.map((card) => `echo "${card}"`).join('; ')};; esac`;
const WORKS = lists(CARDS.A, CARDS.B);
const FAILS = 'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18';
/** There is no nvidia-smi, as while its package is replaced. */
const MISSING = '';
const OFF_THE_BUS = '3,7,1,-;NVRM: Xid (PCI:0000:30:00): 79, GPU has fallen off the bus.\n';

const root = mkdtempSync(join(tmpdir(), 'watch-'));
afterAll(() => rmSync(root, { recursive: true }));
let dir: string;
let errors: number;
let warnings: unknown[];
let clock: VirtualClock;
beforeEach(() => {
  dir = mkdtempSync(join(root, 'one-'));
  errors = 0;
  warnings = [];
  clock = virtualClock(1_000_000);
  writeFileSync(join(dir, 'kmsg'), '');
});

function open(bootId = 'boot', excluded: readonly string[] = []): Promise<GpuWatch> {
  const log = createLog('agent', 'silent');
  log.error = () => (errors += 1);
  log.warn = (fields: unknown) => warnings.push(fields);
  const kernelLog = openKernelLog(join(dir, 'kmsg'));
  return openGpuWatch({
    nvidiaSmi: join(dir, 'nvidia-smi'),
    excluded,
    stateDir: dir,
    files: DISK,
    bootId,
    kernelLog,
    clock,
    log,
  });
}

function script(text: string): void {
  if (text === MISSING) return rmSync(join(dir, 'nvidia-smi'), { force: true });
  writeFileSync(join(dir, 'nvidia-smi'), `#!/bin/sh\n${text}\n`);
  chmodSync(join(dir, 'nvidia-smi'), 0o755);
}

/** The readings of the watch while nvidia-smi is each of `scripts` in turn. */
async function readAll(watch: GpuWatch, ...scripts: string[]): Promise<string[]> {
  const readings: string[] = [];
  for (const text of scripts) {
    script(text);
    readings.push(inWords(await watch.read(() => [])));
  }
  return readings;
}

function inWords({ gpus, gpu_error: error, gpu_faults: faults }: GpuReading): string {
  const wrong = faults.map(({ uuid, severity }) => `, ${uuid} ${severity}`).join('');
  const known = ['mismatch', 'missing'].find((word) => error.includes(word));
  return `${gpus.length} GPU${known === undefined ? error : `, ${known}`}${wrong}`;
}

test('one failure changes nothing; after a second one in a row no GPU is offered, until nvidia-smi works again', async () => {
  const watch = await open();
  expect(await readAll(watch, WORKS, FAILS, WORKS, FAILS, FAILS, FAILS, WORKS)).toEqual([
    '2 GPU',
    '2 GPU',
    '2 GPU',
    '2 GPU',
    '0 GPU, mismatch',
    '0 GPU, mismatch',
    '2 GPU',
  ]);
  expect(errors).toBe(1);
  await watch.close();
});

test('a GPU that the supplier keeps is listed and unfit, and a UUID that no card has is logged once', async () => {
  const watch = await open('boot', ['GPU-2', 'GPU-9']);
  expect(await readAll(watch, WORKS, FAILS, WORKS)).toEqual(Array(3).fill('2 GPU, GPU-2 unfit'));
  const { gpu_faults: faults } = await watch.read(() => []);
  expect(faults).toEqual([{ uuid: 'GPU-2', severity: 'unfit', detail: 'excluded_gpus of agent.yaml names it' }]);
  expect(warnings).toEqual([{ unknown: ['GPU-9'] }]);
  await watch.close();
});

test('a failure of the first reading is reported at once', async () => {
  const watch = await open();
  expect(await readAll(watch, FAILS, WORKS)).toEqual(['0 GPU, mismatch', '2 GPU']);
  await watch.close();
});

test('no card is broken while an upgrade of the driver removes nvidia-smi, also for an agent that starts then', async () => {
  const watch = await open();
  expect(await readAll(watch, WORKS, MISSING, MISSING, MISSING, FAILS)).toEqual([
    '2 GPU',
    '2 GPU',
    '0 GPU, missing',
    '0 GPU, missing',
    '0 GPU, mismatch',
  ]);
  await watch.close();
  const restarted = await open();
  expect(await readAll(restarted, MISSING, MISSING, WORKS)).toEqual(['0 GPU, missing', '0 GPU, missing', '2 GPU']);
  await restarted.close();
});

test('a machine that has never listed a card has no GPUs while it has no nvidia-smi', async () => {
  const watch = await open();
  expect(await readAll(watch, MISSING, MISSING, WORKS)).toEqual(['0 GPU', '0 GPU', '2 GPU']);
  await watch.close();
});

test('a card that is omitted once keeps its state, one that is omitted again is broken, and it may return', async () => {
  const watch = await open();
  const without = lists(CARDS.B);
  expect(await readAll(watch, WORKS, without, WORKS, without, without, without, WORKS)).toEqual([
    '2 GPU',
    '2 GPU',
    '2 GPU',
    '2 GPU',
    '1 GPU, GPU-1 broken',
    '1 GPU, GPU-1 broken',
    '2 GPU',
  ]);
  await watch.close();
});

test('a card that wears out stays unfit while nvidia-smi fails to say more, until it says otherwise', async () => {
  const watch = await open();
  const remapped = (answer: string): string => `case $1 in *remapped*) ${answer};; esac\n${WORKS}`;
  const [worn, late] = [remapped('echo "GPU-1, No, Yes"'), remapped('exit 9')];
  expect(await readAll(watch, late, worn, late, late, WORKS)).toEqual([
    '2 GPU',
    '2 GPU, GPU-1 unfit',
    '2 GPU, GPU-1 unfit',
    '2 GPU, GPU-1 unfit',
    '2 GPU',
  ]);
  await watch.close();
});

test('errors in the kernel log are read once, and reported even while nvidia-smi fails', async () => {
  const watch = await open();
  await readAll(watch, WORKS);
  expect(await watch.hear()).toBe(false);
  appendFileSync(join(dir, 'kmsg'), OFF_THE_BUS);
  expect(await watch.hear()).toBe(true);
  expect(await watch.hear()).toBe(false);
  expect(await readAll(watch, WORKS, FAILS, FAILS)).toEqual([
    '2 GPU, GPU-1 broken',
    '2 GPU, GPU-1 broken',
    '0 GPU, mismatch, GPU-1 broken',
  ]);
  await watch.close();
});

test('a restarted agent knows faults that the kernel log no longer contains; a new boot clears them', async () => {
  appendFileSync(join(dir, 'kmsg'), OFF_THE_BUS);
  const first = await open();
  await readAll(first, WORKS);
  await first.close();
  writeFileSync(join(dir, 'kmsg'), '');
  const second = await open();
  expect(await readAll(second, FAILS)).toEqual(['0 GPU, mismatch, GPU-1 broken']);
  await second.close();
  const booted = await open('another boot');
  expect(await readAll(booted, WORKS)).toEqual(['2 GPU']);
  await booted.close();
});

test('a restarted agent whose first listing omits a card keeps its state too', async () => {
  const first = await open();
  await readAll(first, WORKS);
  await first.close();
  const second = await open();
  expect(await readAll(second, lists(CARDS.B), lists(CARDS.B))).toEqual(['2 GPU', '1 GPU, GPU-1 broken']);
  await second.close();
});

test('an nvidia-smi that never ends counts as failed, and no second one is started', async () => {
  const watch = await open();
  await readAll(watch, WORKS);
  script(`echo $$ >>${join(dir, 'pids')}; exec sleep 600`);
  const pids = async (): Promise<string | undefined> =>
    existsSync(join(dir, 'pids')) ? readFileSync(join(dir, 'pids'), 'utf8') : undefined;
  const readings: string[] = [];
  for (const _look of ['first', 'second']) {
    const reading = watch.read(() => []);
    await eventually('nvidia-smi', 5_000, pids);
    await eventually('a deadline', 5_000, async () => (clock.waiting() > 0 ? true : undefined));
    clock.jump(60_000);
    readings.push(inWords(await reading));
  }
  const started = ((await pids()) ?? '').trim().split('\n');
  for (const pid of started) process.kill(Number(pid), 'SIGKILL');
  expect(readings[0]).toBe('2 GPU');
  expect(readings[1]).toContain('does not come to an end');
  expect(started).toHaveLength(1);
  await eventually('recovery', 5_000, async () => {
    const [reading] = await readAll(watch, WORKS);
    return reading === '2 GPU' ? true : undefined;
  });
  await watch.close();
});

test('a machine whose kernel log cannot be read relies on nvidia-smi alone', async () => {
  rmSync(join(dir, 'kmsg'));
  const watch = await open();
  expect(await watch.hear()).toBe(false);
  expect(await readAll(watch, WORKS)).toEqual(['2 GPU']);
  await watch.close();
});
