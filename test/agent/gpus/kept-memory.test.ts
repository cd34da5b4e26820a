// The memory of the GPUs' faults on the disk: the listing and the kernel log may change it at the same time.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openMemory } from '../../../agent/gpus/kept-memory.ts';
import { DISK } from '../../../agent/host/state.ts';
import { createLog } from '../../../shared/log.ts';

let dir: string;
beforeEach(() => (dir = mkdtempSync(join(tmpdir(), 'memory-'))));
afterEach(() => rmSync(dir, { recursive: true }));

test('changes at the same time are stored one after another, and the last one stays', async () => {
  const lines: string[] = [];
  const log = createLog('agent', 'error', { write: (line: string) => void lines.push(line) });
  const memory = await openMemory(dir, 'boot', { files: DISK, log });
  const changes = [1, 2, 3, 4].map((seq) => memory.replace({ ...memory.now(), heard_seq: seq }));
  await Promise.all(changes);
  expect(lines).toEqual([]);
  expect((await openMemory(dir, 'boot', { files: DISK, log })).now().heard_seq).toBe(4);
});
