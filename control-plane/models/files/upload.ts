// POST /v1/files: streams an upload to its blob, checks it meanwhile, and inserts the row when the file is whole. Each upload may fill the disk
// up to its limit before it is refused, so an organisation may have only some under way.
import { FILE_PURPOSE, type TrainingReport } from '../../../shared/api/file.ts';
import type { FineTuningQuote } from '../../../shared/api/fine-tuning.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail, failField, ServiceError } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { FILENAME_CHARS_MAX, FILES_PER_ORG_MAX, FORM_BYTES_AROUND_MAX } from '../../../shared/limits.ts';
import { type Blobs, removeUnnamed, type StoredBlob, writeForCaller } from '../../base/blobs/blobs.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { type FormFile, readForm } from '../../base/http/multipart.ts';
import type { Call, Upload } from '../../base/http/route.ts';
import { openCheck } from './check.ts';
import { type FileRow, insertFile, storedOf } from './store.ts';

export interface FilesDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  blobs: Blobs;
  /** Limit for one file. */
  bytesMax: number;
  /** Limit for all files of one organisation together. */
  bytesPerOrgMax: number;
  /** Provided by the room that trains with files. @throws ServiceError `conflict` if an open job reads the file */
  refuseInUse(tx: Tx, fileId: string): Promise<void>;
  /** What a job with such a file would cost, for each base model. */
  quotes(report: TrainingReport): FineTuningQuote[];
}

export type UploadCall = Pick<Call<undefined, undefined, Upload>, 'caller' | 'body' | 'gone'>;

/**
 * Accepts the parts of the form in any order. If it throws, nothing is stored.
 * @throws ServiceError `body_too_large`, `conflict` above the organisation's limits, `validation_failed`, `unsupported_parameter`,
 * `invalid_request`, `storage_full`
 */
export async function upload({ caller, body, gone }: UploadCall, deps: FilesDeps): Promise<FileRow> {
  const { orgId } = caller;
  const { bytesMax, bytesPerOrgMax, db, blobs } = deps;
  if (body.bytes !== undefined && body.bytes > bytesMax + FORM_BYTES_AROUND_MAX) failTooLarge(bytesMax);
  const stored = await storedOf(db.read, orgId);
  const room = bytesPerOrgMax - stored.bytes;
  if (stored.count >= FILES_PER_ORG_MAX || room <= 0) failNoRoom(deps);
  const key = blobs.newKey('files');
  const spool = async ({ stream }: FormFile): Promise<Spooled> => {
    const check = openCheck();
    const limits = { bytesMax: Math.min(bytesMax, room), gone };
    const blob = await writeForCaller(blobs, key, watched(stream, check.take), limits).catch((error: unknown) => {
      if (!(error instanceof ServiceError) || error.code !== 'body_too_large') throw error;
      return room < bytesMax ? failNoRoom(deps) : failTooLarge(bytesMax);
    });
    return { blob, report: check.report() };
  };
  const form = await readUploadForm(body, spool).catch(async (error: unknown) => {
    await removeUnnamed(blobs, key);
    throw error;
  });
  return keepFile(orgId, form, deps).catch(async (error: unknown) => {
    // After any other error it is unknown whether the row was committed, so the blob is left to the sweep.
    if (error instanceof ServiceError) await removeUnnamed(blobs, key);
    throw error;
  });
}

interface Spooled {
  blob: StoredBlob;
  report: TrainingReport;
}

/** Reads the fields of the form, and passes its file to `spool`. Official clients send the file before its purpose. */
async function readUploadForm(
  body: Upload,
  spool: (file: FormFile) => Promise<Spooled>,
): Promise<Spooled & { filename: string }> {
  let file: (Spooled & { filename: string }) | undefined;
  let purpose: string | undefined;
  let hasFile = false;
  await readForm(body, {
    field: (name, value) => {
      if (name === 'file') failField('file', 'must be sent as a file, with a file name');
      if (name !== 'purpose') failUnsupported(name);
      if (value !== FILE_PURPOSE) failField('purpose', `must be ${FILE_PURPOSE}`);
      purpose = value;
    },
    file: async (part) => {
      if (part.name !== 'file') failUnsupported(part.name);
      if (hasFile) failField('file', 'must be sent once');
      hasFile = true;
      const filename = readFilename(part.filename);
      file = { ...(await spool(part)), filename };
    },
  });
  if (file === undefined) return failField('file', 'is required');
  if (purpose === undefined) failField('purpose', 'is required');
  if (file.blob.bytes === 0) failField('file', 'must not be empty');
  return file;
}

function readFilename(name: string): string {
  if (name === '') failField('file', 'must be sent with a file name');
  if (name.length > FILENAME_CHARS_MAX)
    failField('file', `must have a name of at most ${FILENAME_CHARS_MAX} characters`);
  if (/\p{Cc}/u.test(name)) failField('file', 'must have a name without control characters');
  return name;
}

/** Passes each piece on after `see` has received it. */
export async function* watched(
  source: AsyncIterable<Uint8Array>,
  see: (piece: Uint8Array) => void,
): AsyncGenerator<Uint8Array> {
  for await (const piece of source) {
    see(piece);
    yield piece;
  }
}

function keepFile(
  orgId: string,
  { blob, report, filename }: Spooled & { filename: string },
  deps: FilesDeps,
): Promise<FileRow> {
  const { db, ids, clock, bytesPerOrgMax } = deps;
  return db.tx('files.upload', async (tx) => {
    await tx.lock('org', orgId);
    const file: FileRow = {
      id: ids.prefixed('file'),
      org_id: orgId,
      blob_key: blob.key,
      filename,
      purpose: FILE_PURPOSE,
      bytes: blob.bytes,
      sha256: blob.sha256,
      report,
      created_ms: clock.now(),
    };
    await insertFile(tx, file);
    // The limits are checked again, because other uploads of the organisation may have ended since this one began.
    const { count, bytes } = await storedOf(tx, orgId);
    if (count > FILES_PER_ORG_MAX || bytes > bytesPerOrgMax) failNoRoom(deps);
    return file;
  });
}

function failTooLarge(bytesMax: number): never {
  return fail('body_too_large', `A file may have at most ${bytesMax} bytes. Split it into several.`);
}

export function failNoRoom({ bytesPerOrgMax }: FilesDeps): never {
  return fail(
    'conflict',
    `An organisation may have ${FILES_PER_ORG_MAX} files with ${bytesPerOrgMax} bytes together, with those that come in parts, and this one is beyond that. Delete some first.`,
  );
}

export function failUnsupported(name: string): never {
  const field = name.slice(0, FILENAME_CHARS_MAX);
  return fail('unsupported_parameter', {
    detail: `${field} is not supported in v1.1 of the inference API. Leave it out.`,
    errors: [{ field, rule: 'is not supported' }],
  });
}

export interface AtOnce {
  /** @throws ServiceError `rate_limit_exceeded`, and the errors of the work */
  run<T>(orgId: string, work: () => Promise<T>): Promise<T>;
}

const RETRY_S = 5;

/** `what` names what is limited, in the plural. */
export function openAtOnce(what: string, max: number): AtOnce {
  const running = new Map<string, number>();
  return {
    run: async (orgId, work) => {
      const count = running.get(orgId) ?? 0;
      if (count >= max) {
        const detail = `${max} ${what} of the organisation are under way. Wait until one of them is over.`;
        fail('rate_limit_exceeded', { detail, retryAfterSeconds: RETRY_S });
      }
      running.set(orgId, count + 1);
      try {
        return await work();
      } finally {
        const left = (running.get(orgId) ?? 1) - 1;
        if (left === 0) running.delete(orgId);
        else running.set(orgId, left);
      }
    },
  };
}
