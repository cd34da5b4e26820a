// What the operator has approved of a host, and how the host differs from that in words.
import { describe, expect, test } from 'vitest';
import {
  type ApprovedGpu,
  driverWords,
  foreignWords,
  gpusToApprove,
  isApproved,
  missingWords,
} from '../../../control-plane/fleet/supply/approval.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import { inventoryOf } from '../../kit/machines.ts';

/** A host with these GPUs, H100s with driver 550.54.15. */
function host(names: readonly string[], patch: Partial<Inventory> = {}): Inventory {
  const left = [...names];
  return { ...inventoryOf(names.length, () => left.shift() ?? ''), ...patch };
}
const approvedOf = (...names: string[]): ApprovedGpu[] => gpusToApprove(host(names));
const H100 = { gpu_type: 'H100_SXM', vram_gb: 80, driver_version: '550.54.15' };

test('an approval lists the GPUs by UUID, in whatever order the host shows them', () => {
  const gpus = [
    { uuid: 'GPU-a', ...H100 },
    { uuid: 'GPU-b', ...H100 },
    { uuid: 'GPU-c', ...H100 },
  ];
  expect(approvedOf('b', 'c', 'a')).toEqual(gpus);
  expect(isApproved(gpus, host(['c', 'a', 'b']))).toBe(true);
  expect(isApproved(gpus, host(['a', 'b']))).toBe(false);
});

describe('a host with GPUs that nobody has approved', () => {
  const [first, second] = host(['a', 'b']).gpus;
  const as = (patch: object): Inventory => host([], { gpus: [{ ...first, ...patch } as Inventory['gpus'][number]] });

  test.each<[string, Inventory, string | undefined]>([
    ['shows the approved ones', host(['a']), undefined],
    ['shows none', host([]), undefined],
    ['shows another driver', as({ driver_version: '1' }), undefined],
    ['shows another GPU', host([], { gpus: second === undefined ? [] : [second] }), 'GPU-b (H100_SXM, 80 GB)'],
    [
      'shows another type',
      as({ name: 'NVIDIA H100 PCIe' }),
      'GPU-a as H100_PCIE with 80 GB, approved as H100_SXM with 80 GB',
    ],
    ['shows another size', as({ memory_mib: 40_960 }), 'GPU-a as H100_SXM with 40 GB, approved as H100_SXM with 80 GB'],
  ])('%s', (_what, inventory, words) => {
    expect(foreignWords(approvedOf('a'), inventory)).toBe(
      words && `the host showed what the operator has not approved: ${words}`,
    );
  });

  test.each([
    [3, 'GPU-0 (H100_SXM, 80 GB), GPU-1 (H100_SXM, 80 GB), GPU-2 (H100_SXM, 80 GB)'],
    [4, 'GPU-0 (H100_SXM, 80 GB), GPU-1 (H100_SXM, 80 GB), GPU-2 (H100_SXM, 80 GB) and 1 more'],
    [8, 'GPU-0 (H100_SXM, 80 GB), GPU-1 (H100_SXM, 80 GB), GPU-2 (H100_SXM, 80 GB) and 5 more'],
  ])('names three of %d', (count, words) => {
    const names = Array.from({ length: count }, (_, i) => String(i));
    expect(foreignWords([], host(names))).toBe(`the host showed what the operator has not approved: ${words}`);
  });
});

test('an approved GPU is missing if the host neither shows it nor reports its fault, and not while it cannot count', () => {
  const approved = approvedOf('a', 'b', 'c');
  expect(missingWords(approved, host(['a', 'b', 'c', 'd']))).toBeUndefined();
  expect(missingWords(approved, host(['b']))).toBe(
    'the host does not show 2 of the 3 GPUs that the operator approved: GPU-a, GPU-c',
  );
  const gpu_faults = [{ uuid: 'GPU-a', severity: 'broken' as const, detail: 'Xid 79' }];
  expect(missingWords(approved, host(['b', 'c'], { gpu_faults }))).toBeUndefined();
  expect(missingWords(approved, host([], { gpu_error: 'no devices' }))).toBeUndefined();
});

test('a driver differs only at a GPU that was approved', () => {
  const approved = approvedOf('a');
  expect(driverWords(approved, host(['a', 'b']))).toBeUndefined();
  const { gpus } = host(['a', 'b']);
  const other = gpus.map((gpu) => ({ ...gpu, driver_version: '570.1' }));
  expect(driverWords([], host([], { gpus: other }))).toBeUndefined();
  expect(driverWords(approved, host([], { gpus: other.slice(1) }))).toBeUndefined();
  expect(driverWords(approved, host([], { gpus: other.toReversed() }))).toBe(
    'the host runs the GPU driver 570.1, and the operator approved 550.54.15',
  );
});
