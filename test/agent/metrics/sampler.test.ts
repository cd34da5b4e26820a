// When samples are taken and what they contain, on a virtual clock.
import { afterEach, expect, test } from 'vitest';
import type { CardFigures } from '../../../agent/gpus/figures.ts';
import { type Sampler, type SamplerDeps, startSampler } from '../../../agent/metrics/sampler.ts';
import { createLog } from '../../../shared/log.ts';
import { MetricsSample } from '../../../shared/protocol/metrics.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const CARD: CardFigures = {
  uuid: 'GPU-1',
  index: 0,
  utilization_percent: 50,
  memory_utilization_percent: null,
  memory_used_mib: 1,
  memory_free_mib: 1,
  power_watts: 100,
  temperature_celsius: 40,
  memory_temperature_celsius: null,
  sm_clock_mhz: 345,
  memory_clock_mhz: 2_619,
  throttle_reasons: 1,
};
const FIGURES = {
  cpu_seconds: 1,
  memory_used_bytes: 2,
  memory_limit_bytes: 3,
  network_received_bytes: 4,
  network_sent_bytes: 5,
};

let sampler: Sampler | undefined;
afterEach(() => sampler?.stop());

function start(readFigures: SamplerDeps['readFigures'], more: Partial<SamplerDeps> = {}) {
  const clock = virtualClock();
  const sent: MetricsSample[] = [];
  const warnings: string[] = [];
  const log = createLog('agent', 'silent');
  log.warn = (_fields: unknown, message?: string) => void warnings.push(message ?? '');
  sampler = startSampler({
    readFigures,
    containers: () => [],
    send: (sample) => sent.push(MetricsSample.parse(sample)),
    readContainer: () => Promise.resolve(FIGURES),
    readHost: () => Promise.reject(new Error('no /proc')),
    clock,
    log,
    ...more,
  });
  return { clock, sent, warnings, sampler };
}

test('a sample is taken every ten seconds, every second while somebody looks, and slowly again afterwards', async () => {
  const { clock, sent, sampler } = start(async () => [CARD]);
  await clock.advance(30_500);
  expect(sent.map(({ taken_ms: at }) => at)).toEqual([0, 10_000, 20_000, 30_000]);
  sampler.watch(5_000);
  await clock.advance(25_000);
  const since = sent.slice(4).map(({ taken_ms: at }) => at);
  expect(since).toEqual([31_000, 32_000, 33_000, 34_000, 35_000, 36_000, 46_000]);
});

test('a slow nvidia-smi is never started twice, and one that hangs costs only the figures of the GPUs', async () => {
  let running = 0;
  const { clock, sent, warnings } = start(() => {
    running += 1;
    return new Promise(() => undefined);
  });
  await clock.advance(24_999);
  expect(sent).toEqual([]);
  await clock.advance(30_001);
  expect(running).toBe(1);
  expect(sent.map(({ taken_ms: at }) => at)).toEqual([25_000, 35_000, 45_000, 55_000]);
  expect(sent.flatMap(({ gpus }) => gpus)).toEqual([]);
  expect(warnings.filter((message) => message.includes('GPUs'))).toHaveLength(1);
});

test('a disk that hangs costs only the figures of the host', async () => {
  const { clock, sent, warnings } = start(async () => [CARD], { readHost: () => new Promise(() => undefined) });
  await clock.advance(45_000);
  expect(sent.map(({ taken_ms: at }) => at)).toEqual([25_000, 35_000, 45_000]);
  expect(sent.map(({ gpus, host }) => [gpus.length, host])).toEqual([1, 2, 3].map(() => [1, null]));
  expect(warnings).toEqual(['the figures of this host cannot be read']);
});

test('an end of the agent while nvidia-smi runs is no failure of it', async () => {
  const { clock, warnings, sampler } = start(() => new Promise(() => undefined));
  await clock.advance(5_000);
  await sampler.stop();
  expect(warnings.filter((message) => message.includes('GPUs'))).toEqual([]);
});

test('failures in a row are logged once, and once more after a success', async () => {
  const answers: (() => Promise<CardFigures[]>)[] = [1, 0, 0, 1, 0].map((works) => async () => {
    if (works === 0) throw new Error('Driver/library version mismatch');
    return [CARD];
  });
  const { clock, sent, warnings } = start(async () => (await answers.shift()?.()) ?? []);
  await clock.advance(40_000);
  expect(sent.map(({ gpus }) => gpus.length)).toEqual([1, 0, 0, 1, 0]);
  expect(warnings.filter((message) => message.includes('GPUs'))).toHaveLength(2);
});

test('a GPU names the workload whose running container has it', async () => {
  const containers = () => [{ container_id: 'c', workload_id: 'w1', gpu_uuids: ['GPU-2'] }];
  const { clock, sent } = start(async () => [CARD, { ...CARD, uuid: 'GPU-2', index: 1 }], { containers });
  await clock.advance(0);
  expect(sent[0]?.gpus.map(({ workload_id: id }) => id)).toEqual([null, 'w1']);
  expect(sent[0]?.containers).toEqual([{ workload_id: 'w1', ...FIGURES }]);
  // The host's own figures could not be read, and the others are sent all the same.
  expect(sent[0]?.host).toBeNull();
});
