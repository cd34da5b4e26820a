// The kernel log: only the kernel's own lines about the driver, each once, from a file of records and from the device itself.
import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { openKernelLog } from '../../../agent/gpus/kernel-log.ts';

const dir = mkdtempSync(join(tmpdir(), 'kmsg-'));
afterAll(() => rmSync(dir, { recursive: true }));

test('each record is returned once; fields, other drivers and records of programs are left out', async () => {
  const file = join(dir, 'kmsg');
  writeFileSync(
    file,
    [
      '6,10,5000000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15',
      ' SUBSYSTEM=pci',
      '4,11,5000001,-;usb 1-1: new device',
      // Facility 1 (user): the kernel gives it to whatever is written into its device.
      '14,12,5000002,-;NVRM: Xid (PCI:0000:3b:00): 79, from a program',
      '3,13,5000003,c;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.',
      '',
    ].join('\n'),
  );
  const kernelLog = openKernelLog(file);
  expect(await kernelLog.read()).toEqual([
    { seq: 10, text: 'NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15' },
    { seq: 13, text: 'NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.' },
  ]);
  expect(await kernelLog.read()).toEqual([]);
  appendFileSync(file, '3,14,5000004,-;NVRM: Xid (PCI:0000');
  expect(await kernelLog.read()).toEqual([]);
  appendFileSync(file, ':3b:00): 119, pid=1\n');
  expect(await kernelLog.read()).toEqual([{ seq: 14, text: 'NVRM: Xid (PCI:0000:3b:00): 119, pid=1' }]);
  await kernelLog.close();
});

test('a log longer than one read is read completely', async () => {
  const file = join(dir, 'long');
  const lines = Array.from({ length: 3_000 }, (_, i) => `6,${i},1,-;NVRM: line ${i}`);
  writeFileSync(file, `${lines.join('\n')}\n`);
  const kernelLog = openKernelLog(file);
  expect((await kernelLog.read()).map(({ seq }) => seq)).toEqual(lines.map((_, i) => i));
  await kernelLog.close();
});

test('the device of this machine is read to its end without waiting for more', async () => {
  const kernelLog = openKernelLog();
  // Elsewhere only root may read it.
  const outcome = await kernelLog.read().then(
    () => 'read',
    (error: unknown) => (error instanceof Error && 'code' in error ? error.code : error),
  );
  expect(['read', 'EPERM', 'EACCES', 'ENOENT']).toContain(outcome);
  await kernelLog.close();
});

test('a missing device is an error', async () => {
  await expect(openKernelLog(join(dir, 'none')).read()).rejects.toThrow('ENOENT');
});
