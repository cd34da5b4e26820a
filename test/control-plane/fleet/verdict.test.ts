// What a report of a host says about its GPUs: which of them compute, and whether any of them can be rented.
import { describe, expect, test } from 'vitest';
import { gpusToApprove } from '../../../control-plane/fleet/supply/approval.ts';
import { brokenWords, faultWords, gpuObstacleOf, verificationOf } from '../../../control-plane/fleet/supply/verdict.ts';
import type { GpuFault, Inventory } from '../../../shared/protocol/inventory.ts';
import { inventoryOf } from '../../kit/machines.ts';

const fault = (name: string, severity: GpuFault['severity'] = 'broken', detail = 'Xid 79'): GpuFault => ({
  uuid: `GPU-${name}`,
  severity,
  detail,
});
function host(names: readonly string[], patch: Partial<Inventory> = {}): Inventory {
  const left = [...names];
  return { ...inventoryOf(names.length, () => left.shift() ?? ''), ...patch };
}
const used = (names: readonly string[], inUse: readonly string[], gpu_faults: GpuFault[] = []): Inventory => ({
  ...host(names, { gpu_faults }),
  gpus: host(names).gpus.map((gpu) => ({ ...gpu, foreign_use: inUse.includes(gpu.uuid.slice(4)) })),
});

describe('the GPUs of a rental', () => {
  test.each<[string, Inventory, string | null | undefined]>([
    ['are whole if the host shows them without a fault', host(['a', 'b', 'c']), null],
    ['are whole if another GPU is broken', host(['a', 'b', 'c'], { gpu_faults: [fault('c')] }), null],
    [
      'are whole if one of them is only unfit for the next rental',
      host(['a', 'b'], { gpu_faults: [fault('a', 'unfit')] }),
      null,
    ],
    ['are broken with a broken one', host(['a', 'b'], { gpu_faults: [fault('b')] }), 'GPU-b: Xid 79'],
    [
      'are broken with two',
      host(['a', 'b'], { gpu_faults: [fault('c'), fault('b'), fault('a', 'broken', 'Xid 48')] }),
      'GPU-a: Xid 48; GPU-b: Xid 79',
    ],
    ['are broken if the host lists another one only', host(['a']), 'GPU-b: the host does not list it any more'],
    ['are unknown while the host cannot count', host([], { gpu_error: 'x' }), undefined],
    [
      'are broken by a fault although the host cannot count',
      host([], { gpu_error: 'x', gpu_faults: [fault('a')] }),
      'GPU-a: Xid 79',
    ],
  ])('%s', (_what, inventory, words) => {
    expect(brokenWords(inventory, ['GPU-a', 'GPU-b'])).toBe(words);
  });
});

test('faults are named with their severity and their reason, which stands there once for several', () => {
  expect(faultWords([])).toBe('');
  expect(faultWords([fault('a'), fault('b', 'unfit', 'NVLink')])).toBe(
    'GPU-a is broken: Xid 79; GPU-b is unfit: NVLink',
  );
  expect(faultWords([fault('a'), fault('b', 'unfit'), fault('c')])).toBe(
    'GPU-a, GPU-c are broken: Xid 79; GPU-b is unfit: Xid 79',
  );
});

describe('a host with GPUs that nobody can rent', () => {
  const told = ' GPU-a is broken: Xid 79.';
  test.each<[string, Inventory, string | undefined]>([
    ['has one that is fit', host(['a', 'b'], { gpu_faults: [fault('a')] }), undefined],
    ['has one that is free of others', used(['a', 'b'], ['a']), undefined],
    ['cannot count them', host(['a'], { gpu_error: 'x' }), 'nvidia-smi fails on the host.'],
    [
      'cannot count them, and knows a fault',
      host([], { gpu_error: 'x', gpu_faults: [fault('a')] }),
      `nvidia-smi fails on the host.${told}`,
    ],
    ['shows none', host([]), 'The host shows no GPU.'],
    ['shows none, and knows a fault', host([], { gpu_faults: [fault('a')] }), `The host shows no GPU.${told}`],
    [
      'has all in use by others',
      used(['a', 'b'], ['a', 'b']),
      'Processes outside of this service use every GPU of the host.',
    ],
    [
      'has none that is fit',
      host(['a'], { gpu_faults: [fault('a')] }),
      `No GPU of the host is free of others and fit to be rented.${told}`,
    ],
    [
      'has one broken and one in use',
      used(['a', 'b'], ['b'], [fault('a')]),
      `No GPU of the host is free of others and fit to be rented.${told}`,
    ],
  ])('%s', (_what, inventory, words) => {
    expect(gpuObstacleOf(inventory)).toBe(words);
  });
});

describe('a verdict', () => {
  const claims = {
    declared_gpu_count: null,
    declared_gpu_type: null,
    declared_vram_per_gpu_gb: null,
    approved_gpus: null,
    inventory_fault: null,
    inventory: null,
  };
  const approved = gpusToApprove(host(['a']));
  const verdict = (patch: Partial<Parameters<typeof verificationOf>[0]>, elsewhere = 0) => {
    const { verification_status: status, verification_detail: detail } = verificationOf(
      { ...claims, ...patch },
      elsewhere,
    );
    return [status, detail];
  };

  test('before the first report is none, whatever else is known', () => {
    expect(verdict({ declared_gpu_count: 8, approved_gpus: approved, inventory_fault: 'x' }, 3)).toEqual([
      'unverified',
      null,
    ]);
  });

  test('is none for a host that shows exactly what was declared', () => {
    const declared = { declared_gpu_count: 2, declared_gpu_type: 'h100_sxm', declared_vram_per_gpu_gb: 80 };
    expect(verdict({ ...declared, inventory: host(['a', 'b']) })).toEqual(['unverified', null]);
  });

  test('names a stored contradiction only while there is an approval', () => {
    const shown = { inventory: host(['a']), inventory_fault: 'it showed a GPU too many' };
    expect(verdict(shown)).toEqual(['unverified', null]);
    expect(verdict({ ...shown, approved_gpus: approved })).toEqual([
      'failed',
      'it showed a GPU too many; the operator must approve it again.',
    ]);
  });

  test('names all that is wrong, in one text', () => {
    expect(
      verdict({ inventory: host(['b']), approved_gpus: approved, declared_gpu_count: 2, inventory_fault: 'x' }, 1),
    ).toEqual([
      'failed',
      'gpu_count is declared as 2, the host shows 1; x; the operator must approve it again; ' +
        'the host does not show 1 of the 1 GPUs that the operator approved: GPU-a; ' +
        '1 of its GPUs belong to another machine that the operator approved first.',
    ]);
  });

  test('compares nothing with a count that the host cannot make', () => {
    expect(
      verdict({ inventory: host([], { gpu_error: 'x' }), approved_gpus: approved, declared_gpu_count: 2 }),
    ).toEqual(['unverified', 'The GPUs cannot be counted; on the host, nvidia-smi says: x']);
  });

  test('with mixed GPUs contradicts a declaration that fits only some of them', () => {
    const { gpus } = host(['a', 'b']);
    const mixed = host([], {
      gpus: gpus.map((gpu, i) => (i === 0 ? gpu : { ...gpu, name: 'NVIDIA L4', memory_mib: 23_034 })),
    });
    expect(verdict({ inventory: mixed, declared_gpu_type: 'h100_sxm', declared_vram_per_gpu_gb: 80 })).toEqual([
      'failed',
      'gpu_type is declared as h100_sxm, the host shows H100_SXM, L4; vram_per_gpu_gb is declared as 80, the host shows 80, 24.',
    ]);
  });
});
