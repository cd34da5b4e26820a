// The messages of figures on the link: what is refused, and what agents of older versions are sent.
import { expect, test } from 'vitest';
import { GPUS_PER_MACHINE_MAX, LINK_MESSAGE_BYTES_MAX, LINK_MESSAGE_VALUES_MAX } from '../../../shared/limits.ts';
import { AgentMessage, decodeMessage } from '../../../shared/protocol/link.ts';
import type { MetricsSample } from '../../../shared/protocol/metrics.ts';
import { linkInMemory, MACHINE } from '../../kit/link-in-memory.ts';
import { inventoryOf } from '../../kit/machines.ts';
import { containerSample, gpuSample, metricsSample } from '../../kit/samples.ts';

const decode = (message: unknown) => decodeMessage(AgentMessage, JSON.stringify(message), LINK_MESSAGE_VALUES_MAX);
const times = <T>(count: number, make: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i));
const gpu = (patch: object) => metricsSample(0, { gpus: [gpuSample('u', patch)] });
const container = (patch: object) => metricsSample(0, { containers: [containerSample('w', patch)] });

test('the largest sample is accepted, and one more GPU or container is not', () => {
  const gpus = (count: number) =>
    times(count, (i) => gpuSample(`${i}`.padEnd(128, 'u'), { workload_id: 'w'.repeat(40) }));
  const containers = (count: number) => times(count, (i) => containerSample(`${i}`.padEnd(40, 'w')));
  const most = metricsSample(1e15, {
    gpus: gpus(GPUS_PER_MACHINE_MAX),
    containers: containers(GPUS_PER_MACHINE_MAX),
  });
  expect(decode(most).ok).toBe(true);
  expect(JSON.stringify(most).length).toBeLessThan(LINK_MESSAGE_BYTES_MAX / 50);
  expect(decode({ ...most, gpus: gpus(GPUS_PER_MACHINE_MAX + 1) }).ok).toBe(false);
  expect(decode({ ...most, containers: containers(GPUS_PER_MACHINE_MAX + 1) }).ok).toBe(false);
});

test.each<[string, unknown, unknown]>([
  ['a utilisation', gpu({ utilization_percent: 100 }), gpu({ utilization_percent: 100.5 })],
  ['a negative one', gpu({ utilization_percent: 0 }), gpu({ utilization_percent: -0.5 })],
  ['a power draw', gpu({ power_watts: 1e5 }), gpu({ power_watts: 100_001 })],
  ['a temperature', gpu({ temperature_celsius: -100 }), gpu({ temperature_celsius: -101 })],
  ['throttle reasons', gpu({ throttle_reasons: 0x7fff_ffff }), gpu({ throttle_reasons: 0x8000_0000 })],
  ['an index', gpu({ index: 255 }), gpu({ index: 256 })],
  ['the id of a GPU', gpu({ uuid: 'u'.repeat(128) }), gpu({ uuid: 'u'.repeat(129) })],
  ['the id of a workload', gpu({ workload_id: 'w'.repeat(40) }), gpu({ workload_id: 'w'.repeat(41) })],
  ['bytes', container({ memory_used_bytes: Number.MAX_SAFE_INTEGER }), container({ memory_used_bytes: 2 ** 53 })],
  ['no bytes', container({ network_sent_bytes: 0 }), container({ network_sent_bytes: -1 })],
  ['CPU time', container({ cpu_seconds: 1e12 }), container({ cpu_seconds: 1e12 + 1 })],
  ['an absent value', container({ cpu_seconds: null }), container({ cpu_seconds: undefined })],
  ['known members only', container({}), container({ disk_bytes: 1 })],
])('the limits of a sample are held at both edges: %s', (_, good, bad) => {
  expect(decode(good).ok).toBe(true);
  expect(decode(bad).ok).toBe(false);
});

test('a host with figures is told to sample quickly; an old one never, and it works as before', async () => {
  const samples: MetricsSample[] = [];
  const sentTo = async (version: number): Promise<string[]> => {
    const { link, sent, receive } = linkInMemory(
      { inventory: inventoryOf(1, () => 'u'), version },
      { onMetrics: (_, sample) => void samples.push(sample) },
    );
    await expect.poll(() => sent.some(({ type }) => type === 'desired')).toBe(true);
    link.watch(MACHINE, 5_000);
    if (version >= 3) receive(metricsSample(1));
    return sent.map(({ type }) => type);
  };
  expect(await sentTo(2)).not.toContain('watch');
  expect(await sentTo(3)).toContain('watch');
  await expect.poll(() => samples).toHaveLength(1);
});
