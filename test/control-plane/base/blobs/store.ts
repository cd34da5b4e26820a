// A blob store in its own folder on a virtual clock, for the tests of base/blobs.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';
import { type Blobs, openBlobs, type WriteOptions } from '../../../../control-plane/base/blobs/blobs.ts';
import { createIds } from '../../../../shared/ids.ts';
import { createLog } from '../../../../shared/log.ts';
import { systemRng } from '../../../../shared/rng.ts';
import { type VirtualClock, virtualClock } from '../../../kit/virtual-clock.ts';

export let directory: string;
export let clock: VirtualClock;
export let blobs: Blobs;

/** Closes the store after each test of the file. */
export function openStoreForEachTest(): void {
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'blobs-'));
    clock = virtualClock();
    blobs = reopened();
  });
  afterEach(() => rmSync(directory, { recursive: true }));
}

/** The store of the next process on the same folder. */
export function reopened(): Blobs {
  const log = createLog('test', 'silent');
  return openBlobs(directory, { clock, ids: createIds(clock, systemRng()), log, reserve: { share: 0, bytes: 0 } });
}

/** Paths of all files below the folder. */
export function filesOnDisk(): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(directory.length + 1));
}

export const AMPLE: WriteOptions = { bytesMax: 1_000_000, signal: new AbortController().signal };

export async function* pieces(...texts: string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield Buffer.from(text);
}

/** The content of a file; undefined if it does not exist. */
export async function contentOf(key: string): Promise<string | undefined> {
  const blob = await blobs.open(key);
  if (blob === undefined) return undefined;
  const read: Buffer[] = [];
  for await (const piece of blob.stream()) read.push(piece as Buffer);
  return Buffer.concat(read).toString();
}
