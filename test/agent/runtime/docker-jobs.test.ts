// The archive in which an engine sends one file: only a regular file comes out, with exactly its bytes.
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { afterAll, expect, test } from 'vitest';
import { fileOfArchive } from '../../../agent/runtime/docker-jobs.ts';
import { tarOf } from '../../../agent/runtime/volumeless.ts';
import { capture } from '../../kit/capture.ts';

const dir = mkdtempSync(join(tmpdir(), 'archive-'));
afterAll(() => rmSync(dir, { recursive: true }));

const archive = (bytes: Buffer, pieceBytes = 100): Readable =>
  Readable.from(
    Array.from({ length: Math.ceil(bytes.length / pieceBytes) }, (_, i) =>
      bytes.subarray(i * pieceBytes, (i + 1) * pieceBytes),
    ),
    { objectMode: false },
  );

test.each([1, 100, 512, 10_000])('reads a file that comes in pieces of %i bytes', async (pieceBytes) => {
  const content = 'a'.repeat(1300);
  const found = await fileOfArchive(archive(tarOf([{ name: 'f', content }]), pieceBytes));
  expect(found?.bytes).toBe(1300);
  expect((await buffer(found?.stream ?? Readable.from([]))).toString()).toBe(content);
});

test('reads the file behind a description of it', async () => {
  writeFileSync(join(dir, 'x'.repeat(120)), 'long name');
  await capture(['tar', '--format=pax', '-C', dir, '-cf', join(dir, 'pax.tar'), 'x'.repeat(120)]);
  const found = await fileOfArchive(archive(readFileSync(join(dir, 'pax.tar'))));
  expect((await buffer(found?.stream ?? Readable.from([]))).toString()).toBe('long name');
});

test('refuses a folder and a link', async () => {
  expect(await fileOfArchive(archive(tarOf([{ name: 'd/' }])))).toBeUndefined();
  symlinkSync('/etc/passwd', join(dir, 'link'));
  await capture(['tar', '-C', dir, '-cf', join(dir, 'link.tar'), 'link']);
  expect(await fileOfArchive(archive(readFileSync(join(dir, 'link.tar'))))).toBeUndefined();
});

test('fails if the archive ends before the file does', async () => {
  const found = await fileOfArchive(archive(tarOf([{ name: 'f', content: 'a'.repeat(1300) }]).subarray(0, 1000)));
  await expect(buffer(found?.stream ?? Readable.from([]))).rejects.toThrow('too early');
  await expect(fileOfArchive(archive(Buffer.alloc(100)))).rejects.toThrow('too early');
});
