// Whether a launch under a contract fits its slots on a machine, one fact at a time.
import { describe, expect, test } from 'vitest';
import {
  hasCapacity,
  hasVram,
  honoursDisk,
  isFor,
  type SlotRequest,
  type Slots,
} from '../../../control-plane/fleet/supply/slots.ts';

const SLOTS: Slots = {
  machine_id: 'm',
  offering_id: 'o',
  gpu_type: 'H100_SXM',
  region: 'eu',
  listed: true,
  disk_configurable: true,
  storage_gb: 500,
  vram_gb: 80,
  disk_free_gb: 300,
  slots: 4,
  in_use: 1,
  free: 2,
};
const REQUEST: SlotRequest = {
  gpuType: 'H100_SXM',
  gpuCount: 2,
  offeringId: 'o',
  region: 'eu',
  diskGb: 300,
  minVramGb: 80,
  exceptMachineIds: ['other'],
};

test('a launch fits that needs all of it, and one that asks for nothing special', () => {
  expect(hasCapacity(SLOTS, REQUEST)).toBe(true);
  const any = { ...REQUEST, offeringId: null, region: null, diskGb: null, minVramGb: 0, exceptMachineIds: [] };
  expect(hasCapacity(SLOTS, any)).toBe(true);
  expect(hasCapacity({ ...SLOTS, disk_configurable: false, disk_free_gb: 0 }, { ...any, roomGb: 10 })).toBe(true);
  expect(hasCapacity({ ...SLOTS, disk_free_gb: 10 }, { ...any, roomGb: 10 })).toBe(true);
});

test.each<[string, Partial<SlotRequest>, Partial<Slots>]>([
  ['another type', { gpuType: 'L4' }, {}],
  ['another region', { region: 'us' }, {}],
  ['another offering', { offeringId: 'o-2' }, {}],
  ['more VRAM', { minVramGb: 81 }, {}],
  ['more GPUs than are free', { gpuCount: 3 }, {}],
  ['more disk than is free', { diskGb: 301 }, {}],
  ['a disk, on a host that enforces none', {}, { disk_configurable: false }],
  ['a disk of no named size, on a host with less than the smallest', { diskGb: null, roomGb: 10 }, { disk_free_gb: 9 }],
  ['another machine than one that has failed it', { exceptMachineIds: ['other', 'm'] }, {}],
])('a launch does not fit that needs %s', (_what, request, slots) => {
  expect(hasCapacity({ ...SLOTS, ...slots }, { ...REQUEST, ...request })).toBe(false);
});

describe('slots that are in use', () => {
  test('are for a launch although it has to wait, with the whole disk of the host', () => {
    const busy = { ...SLOTS, free: 0, disk_free_gb: 0 };
    expect([isFor(busy, REQUEST), hasVram(busy, REQUEST), honoursDisk(busy, REQUEST)]).toEqual([true, true, true]);
    expect(hasCapacity(busy, REQUEST)).toBe(false);
    expect([honoursDisk(busy, { ...REQUEST, diskGb: 500 }), honoursDisk(busy, { ...REQUEST, diskGb: 501 })]).toEqual([
      true,
      false,
    ]);
  });
});
