// Uploads what a job leaves behind: its newest checkpoint, and the files of its result.
import { createHash } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { z } from 'zod';
import { parseJson } from '../../shared/json.ts';
import { JOB_JSON_VALUES_MAX, JOB_MANIFEST_BYTES_MAX, JOB_RESULT_FILES_MAX } from '../../shared/limits.ts';
import { fileOf, JobFile, type JobUrlPurpose } from '../../shared/protocol/job.ts';
import type { Engine, FileInContainer } from '../runtime/engine.ts';
import { JOB_FOLDERS } from '../runtime/shape.ts';
import type { JobRecord } from '../runtime/records.ts';
import { type JobLink, upload, type Wire } from './transfer.ts';

/** Content of `/job/out/result.json`. Members that are not named here are dropped. */
const Manifest = z.object({ files: z.array(JobFile).min(1).max(JOB_RESULT_FILES_MAX) });

export interface FilesDeps extends Wire {
  engine: Pick<Engine, 'fileIn'>;
  link: Pick<JobLink, 'url'>;
}

/** Uploads a checkpoint. Resolves with the reason if it cannot be uploaded. @throws Error if another try may succeed */
export async function uploadCheckpoint(
  id: string,
  { step, name }: NonNullable<JobRecord['checkpoint']>,
  deps: FilesDeps,
): Promise<string | undefined> {
  const path = `${JOB_FOLDERS.checkpoints}/${name}`;
  const found = await deps.engine.fileIn(id, path);
  if (found === undefined) return `the checkpoint ${name} is not there`;
  const file = { name, bytes: found.bytes, sha256: await hashOf(found) };
  return carry(id, path, { kind: 'checkpoint', step, file }, deps);
}

/** The result of a job whose program has ended. */
export type Result = { files: JobFile[] } | { detail: string };

/** Uploads the files that the manifest of the result names. @throws Error if another try may succeed */
export async function uploadResult(id: string, deps: FilesDeps): Promise<Result> {
  const manifest = await readManifest(id, deps);
  if ('detail' in manifest) return manifest;
  for (const file of manifest.files) {
    const fault = await carry(id, `${JOB_FOLDERS.out}/${file.name}`, { kind: 'result', file }, deps);
    if (fault !== undefined) return { detail: fault };
  }
  return manifest;
}

async function readManifest(id: string, { engine }: FilesDeps): Promise<Result> {
  const found = await engine.fileIn(id, `${JOB_FOLDERS.out}/result.json`);
  if (found === undefined) return { detail: 'the program has left no result.json' };
  if (found.bytes > JOB_MANIFEST_BYTES_MAX) {
    found.stream.destroy();
    return { detail: 'result.json is too large' };
  }
  const json = parse(await text(found.stream));
  const manifest = Manifest.safeParse(json);
  if (!manifest.success) return { detail: 'result.json does not list files with name, bytes and sha256' };
  const { files } = manifest.data;
  if (new Set(files.map(({ name }) => name)).size < files.length) return { detail: 'result.json names a file twice' };
  return { files };
}

function parse(json: string): unknown {
  try {
    return parseJson(json, JOB_JSON_VALUES_MAX);
  } catch {
    return undefined;
  }
}

/** Uploads one file. Resolves with undefined once the control plane has it, or with the reason if another try would be useless. */
async function carry(
  id: string,
  path: string,
  purpose: Exclude<JobUrlPurpose, { kind: 'input' }>,
  { engine, link, ...wire }: FilesDeps,
): Promise<string | undefined> {
  const { bytes } = purpose.file;
  const answer = await link.url(id, purpose);
  if (answer.kind === 'refused') return answer.detail;
  if (answer.kind === 'stored') return undefined;
  const found = await engine.fileIn(id, path);
  if (found?.bytes !== bytes) {
    found?.stream.destroy();
    return `${fileOf(purpose)} is not there with ${bytes} bytes`;
  }
  await upload(answer, found.stream, bytes, wire);
  const after = await link.url(id, purpose);
  if (after.kind === 'url') throw new Error(`the control plane has not got ${fileOf(purpose)}`);
  return after.kind === 'refused' ? after.detail : undefined;
}

async function hashOf({ stream }: FileInContainer): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of stream as AsyncIterable<Buffer>) hash.update(piece);
  return hash.digest('hex');
}
