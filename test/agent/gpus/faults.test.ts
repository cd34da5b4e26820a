// Which cards must not be rented, from listings and kernel records: lost cards, resets, reboots, and cards that break repeatedly.
import { expect, test } from 'vitest';
import { afterListing, afterRecords, faultsOf, type Memory, memoryOf } from '../../../agent/gpus/faults.ts';
import { countCards, type GpuFacts, type GpuFault } from '../../../shared/protocol/inventory.ts';

const A = 'GPU-aaaa0000-0000-4000-8000-000000000001';
const B = 'GPU-bbbb0000-0000-4000-8000-000000000002';
const HOUR_MS = 3_600_000;
const NONE_UNFIT = new Map<string, string>();

const gpu = (uuid: string, index: number): GpuFacts => ({
  uuid,
  index,
  name: 'NVIDIA H100 80GB HBM3',
  memory_mib: 81_559,
  driver_version: '550.54.15',
  bus_id: `00000000:3${index}:00.0`,
  foreign_use: false,
});
const BOTH = [gpu(A, 0), gpu(B, 1)];
const OFF_THE_BUS = 'NVRM: Xid (PCI:0000:30:00): 79, GPU has fallen off the bus.';

const fresh = (bootId = 'one', before?: Memory): Memory => memoryOf(before, bootId);
const list = (memory: Memory, listed = BOTH, nowMs = 0): Memory => afterListing(memory, listed, nowMs);
const log = (memory: Memory, text: string, nowMs = 0): Memory =>
  afterRecords(memory, [{ seq: memory.heard_seq + 1, text }], nowMs);
const faults = (memory: Memory, nowMs = 0): GpuFault[] => faultsOf(memory, NONE_UNFIT, nowMs);

test('listed cards without errors are fit', () => {
  expect(faults(list(fresh()))).toEqual([]);
});

test('a card that is lost still counts as one of the machine, and a listed card with a fault counts once', () => {
  const lost = [1, 2].reduce((memory) => list(memory, [gpu(B, 1)]), log(list(fresh()), OFF_THE_BUS));
  expect(countCards({ gpus: [gpu(B, 1)], gpu_faults: faults(lost) })).toBe(2);
  expect(countCards({ gpus: BOTH, gpu_faults: faults(log(list(fresh()), OFF_THE_BUS)) })).toBe(2);
  expect(countCards({ gpus: [], gpu_faults: [] })).toBe(0);
});

test('an Xid counts for the card at that bus id, whether the listing or the log came first', () => {
  const detail = 'Xid 79: it has fallen off the bus';
  const expected = [{ uuid: A, severity: 'broken', detail }];
  expect(faults(log(list(fresh()), OFF_THE_BUS))).toEqual(expected);
  expect(faults(list(log(fresh(), OFF_THE_BUS)))).toEqual(expected);
});

test('a card that nvidia-smi has never listed in this boot is identified by the log', () => {
  const named = log(fresh(), `NVRM: GPU at PCI:0000:30:00: ${A}`);
  const broken = log(named, OFF_THE_BUS);
  expect(faults(broken)).toMatchObject([{ uuid: A, severity: 'broken' }]);
});

test('a card that is missing in one listing keeps its state; after the second it is lost, and it may return', () => {
  const once = list(list(fresh()), [gpu(B, 1)]);
  expect(faults(once)).toEqual([]);
  const lost = list(once, [gpu(B, 1)]);
  expect(faults(lost)).toEqual([{ uuid: A, severity: 'broken', detail: 'nvidia-smi does not list it any more' }]);
  expect(faults(list(lost))).toEqual([]);
});

test.each([
  [
    'the driver was loaded anew',
    (memory: Memory) => log(memory, 'NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550'),
  ],
  [
    'the driver says so',
    (memory: Memory) =>
      log(
        memory,
        'NVRM: Xid (PCI:0000:30:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)',
      ),
  ],
  ['the host was booted', (memory: Memory) => list(fresh('two', memory))],
])('it is fit again when %s', (_what, mend) => {
  const broken = log(list(fresh()), OFF_THE_BUS);
  expect(faults(mend(broken))).toEqual([]);
});

test('records that were read before a restart of the agent change nothing; their fault is still known', () => {
  const broken = log(list(fresh()), OFF_THE_BUS);
  const again = afterRecords(memoryOf(broken, 'one'), [{ seq: 0, text: 'NVRM: loading NVIDIA UNIX x86_64' }], 0);
  expect(faults(again)).toHaveLength(1);
});

test('the most serious fault is reported: broken before unfit, an unfit Xid before what nvidia-smi reports', () => {
  const unfit = log(list(fresh()), 'NVRM: Xid (PCI:0000:30:00): 74, NVLink: fatal error');
  const reported = new Map([[A, 'worn']]);
  expect(faultsOf(list(fresh()), reported, 0)).toMatchObject([{ severity: 'unfit', detail: 'worn' }]);
  expect(faultsOf(unfit, reported, 0)).toMatchObject([{ severity: 'unfit', detail: 'Xid 74: its NVLink has failed' }]);
  expect(faultsOf(log(unfit, OFF_THE_BUS), reported, 0)).toMatchObject([{ severity: 'broken' }]);
});

test('a card that breaks for the third time in seven days stays out after its reset, until that is long ago', () => {
  let memory = fresh('0');
  for (const boot of [1, 2, 3]) {
    memory = list(fresh(String(boot), memory));
    expect(faults(memory, boot * HOUR_MS)).toEqual([]);
    // Two records of one fault count once.
    memory = log(log(memory, OFF_THE_BUS, boot * HOUR_MS), OFF_THE_BUS, boot * HOUR_MS);
  }
  memory = list(fresh('4', memory), BOTH, 4 * HOUR_MS);
  const inspect = [{ uuid: A, severity: 'unfit', detail: 'it broke 3 times in seven days: have it inspected' }];
  const weekMs = 7 * 24 * HOUR_MS;
  expect(faults(memory, HOUR_MS + weekMs - 1)).toEqual(inspect);
  expect(faults(memory, HOUR_MS + weekMs)).toEqual([]);
});
