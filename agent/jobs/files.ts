// The files of a job. Inputs are fetched before its container is created, and mounted read-only. What the job leaves behind is uploaded: its newest
// checkpoint, and the files of its result.
import { createHash } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { z } from 'zod';
import { access, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { parseJson } from '../../shared/json.ts';
import {
  JOB_FILE_BYTES_MAX,
  JOB_JSON_VALUES_MAX,
  JOB_MANIFEST_BYTES_MAX,
  JOB_RESULT_FILES_MAX,
} from '../../shared/limits.ts';
import { fileOf, JobFile, type JobUrlPurpose } from '../../shared/protocol/job.ts';
import type { Engine, FileInContainer, Mount } from '../runtime/engine.ts';
import { JOB_FOLDERS } from '../runtime/shape.ts';
import { type JobRecord, workloadFolder } from '../runtime/records.ts';
import { type JobLink, upload, type Wire, download } from './transfer.ts';
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import type { DesiredWorkload } from '../../shared/protocol/workload.ts';
import { renameSafely, writeFileSafely } from '../host/state.ts';

const CONFIG_FILE = 'job.json';
/** How often it is looked whether a job is still wanted while its inputs come. */
const WANTED_PERIOD_MS = 1_000;
const RETRY_MS = 5_000;
/** Each failure doubles the pause up to this: an input may have gigabytes, and each try fetches it from its beginning. */
const RETRY_MS_MAX = 60_000;
/** The program of a job may run as any user. */
const FILE_MODE = 0o644;

export interface InputsDeps {
  clock: Clock;
  log: Log;
  stateDir: string;
  ca: string | undefined;
  link: Pick<JobLink, 'url'>;
  /** Whether the workload should still run here. */
  isWanted(workloadId: string): boolean;
  signal: AbortSignal;
}

/** Writes `job.json` and fetches the inputs that are not here yet. @throws Error if the job is not wanted any more, or its files are refused */
export async function prepareInputs(workload: DesiredWorkload, deps: InputsDeps): Promise<Mount[]> {
  const { workload_id: id, job } = workload;
  if (job === undefined) throw new Error(`the workload ${id} is no job`);
  const folder = join(workloadFolder(deps.stateDir, id), 'in');
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await writeFileSafely(join(folder, CONFIG_FILE), job.config, FILE_MODE);
  await whileWanted(id, deps, async (signal) => {
    for (const file of job.inputs) await fetchInput(id, folder, file, { ...deps, signal });
  });
  return [CONFIG_FILE, ...job.inputs.map(({ name }) => name)].map((name) => ({
    source: join(folder, name),
    target: `/job/${name}`,
  }));
}

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
  if (found.bytes > JOB_FILE_BYTES_MAX) {
    found.stream.destroy();
    return `the checkpoint ${name} is larger than ${JOB_FILE_BYTES_MAX / 1024 ** 3} GiB`;
  }
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

/**
 * The signal is aborted once the job is not wanted any more, because its GPUs are not free before the work ends. @throws Error if it is not wanted
 * at the end
 */
async function whileWanted(
  id: string,
  { isWanted, clock, signal }: InputsDeps,
  act: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const unwanted = new AbortController();
  let cancel = (): void => undefined;
  const look = (): void => {
    if (isWanted(id)) cancel = clock.after(WANTED_PERIOD_MS, look);
    else unwanted.abort();
  };
  look();
  const assertWanted = (): void => {
    if (!isWanted(id)) throw new Error('the job is not wanted here any more');
  };
  try {
    await act(AbortSignal.any([signal, unwanted.signal]));
  } finally {
    cancel();
    assertWanted();
  }
}

/** Tries again until it succeeds: a control plane or a network that is away is not the job's fault. */
async function fetchInput(id: string, folder: string, file: JobFile, deps: InputsDeps): Promise<void> {
  const path = join(folder, file.name);
  if (await exists(path)) return;
  for (let pauseMs = RETRY_MS; ; pauseMs = Math.min(pauseMs * 2, RETRY_MS_MAX)) {
    deps.signal.throwIfAborted();
    try {
      const answer = await deps.link.url(id, { kind: 'input', name: file.name });
      if (answer.kind !== 'url')
        throw new Refused(answer.kind === 'refused' ? answer.detail : 'there is nothing to fetch');
      await download(answer, `${path}.new`, file, deps);
      // A file gets its final name only after its bytes were verified and are on the disk: under that name it is never fetched again.
      return await renameSafely(`${path}.new`, path, FILE_MODE);
    } catch (error) {
      if (error instanceof Refused || deps.signal.aborted) throw error;
      deps.log.warn(
        { workload_id: id, file: file.name, detail: messageOf(error) },
        'an input of a job could not be fetched, and is fetched again soon',
      );
      await deps.clock.sleep(pauseMs, deps.signal);
    }
  }
}

class Refused extends Error {}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
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
