// Lines of the kernel log as drivers write them, and what each means for a rental.
import { expect, test } from 'vitest';
import { busIdOf, readDriverLine } from '../../../agent/gpus/xids.ts';

const BUS = '0000:3b:00';
const xid = (number: number, rest: string): string => `NVRM: Xid (PCI:${BUS}): ${number}, ${rest}`;

test.each([
  [62, 'pid=4711, name=python3, 0x2b13 0x0 0x0'],
  [79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."],
  [95, "pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"],
  [119, 'pid=4711, name=python3, Timeout after 45s of waiting for RPC response from GPU0 GSP! Expected function 76'],
  [120, 'GSP task panic: pc:0x0'],
  [140, 'Unrecovered ECC error'],
  [143, 'GPU Initialization Error'],
])('Xid %i breaks the card until it is reset', (number, rest) => {
  expect(readDriverLine(xid(number, rest))).toMatchObject({
    kind: 'fault',
    bus_id: BUS,
    finding: { xid: number, severity: 'broken' },
  });
});

test.each([
  [46, 'Unable to complete'],
  [
    48,
    'An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 7, subpartition 0.',
  ],
  [64, 'Row Remapper Error: (0x0000000fb7a48000) - All reserved rows for bank are remapped'],
  [74, 'NVLink: fatal error detected on link 10(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)'],
])('Xid %i keeps the card from the next customer', (number, rest) => {
  expect(readDriverLine(xid(number, rest))).toMatchObject({ finding: { xid: number, severity: 'unfit' } });
});

test.each([
  [13, 'pid=4711, name=python3, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter'],
  [31, 'pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_14 faulted'],
  [43, 'pid=4711, name=python3, Ch 00000010'],
  [45, 'pid=4711, name=python3, Ch 00000010'],
  [63, 'Row Remapper: New row marked for remapping, reset gpu to activate.'],
  [92, 'High single-bit ECC error rate'],
  [94, "pid='<unknown>', name=<unknown>, Contained: SM (0x1). RST: No, D-RST: No"],
  [109, 'pid=4711, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005'],
  [9999, 'of a later driver'],
])('Xid %i, which a program can bring about or the card has dealt with, takes nothing out', (number, rest) => {
  expect(readDriverLine(xid(number, rest))).toBeUndefined();
});

test.each([
  ['0x0 (None) to 0x1 (GPU Reset Required)', 'broken'],
  ['0x0 (None) to 0x2 (Node Reboot Required)', 'broken'],
  ['0x0 (None) to 0x4 (Drain and Reset)', 'unfit'],
])('the driver says itself what is needed: %s', (change, severity) => {
  expect(readDriverLine(xid(154, `GPU recovery action changed from ${change}`))).toMatchObject({
    finding: { severity },
  });
});

test('the end of a fault, a load of the driver, and the bus id of a card are recognised', () => {
  const line = 'GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)';
  expect(readDriverLine(xid(154, line))).toEqual({ kind: 'mended', bus_id: BUS });
  const loaded = 'NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024';
  expect(readDriverLine(loaded)).toEqual({ kind: 'loaded' });
  const card = 'NVRM: GPU at PCI:0000:3b:00: GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b';
  expect(readDriverLine(card)).toEqual({ kind: 'card', bus_id: BUS, uuid: 'GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b' });
});

test('older drivers leave the word PCI out', () => {
  expect(readDriverLine('NVRM: Xid (0000:3b:00): 79, GPU has fallen off the bus.')).toMatchObject({ bus_id: BUS });
});

test.each([
  `python3[4711]: ${xid(79, 'from a name that a tenant chose')}`,
  'NVRM: Xid (PCI:[4711]: segfault at 0 ip 0000000000401136 sp 00007ffd error 4 in a.out',
  'NVRM: Xid',
  '',
])('what only looks like one says nothing: %s', (line) => {
  expect(readDriverLine(line)).toBeUndefined();
});

test('a bus id has one form', () => {
  expect(['00000000:3B:00.0', '0000:3b:00', '0000:3b:00.0'].map(busIdOf)).toEqual([BUS, BUS, BUS]);
});
