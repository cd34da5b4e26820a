// Stores what this host knows about each workload beyond the engine's own data: failures, the two-phase removal, tombstones.
import { join } from 'node:path';
import { z } from 'zod';
import type { Log } from '../../shared/log.ts';
import { JobFile, JobFileName, ObservedJob } from '../../shared/protocol/job.ts';
import { ObservedWorkload } from '../../shared/protocol/workload.ts';
import type { StateFiles } from '../host/state.ts';

// The schemas drop unknown members: an installation that rolls back to an older agent leaves records that a newer one has written.
const JobRecord = z.object({
  /** Time right before the job's only start, in epoch ms by the control plane's clock. The time limit counts from here. */
  started_ms: z.number(),
  exit_code: z.number().nullable(),
  stopped_at_limit: z.boolean(),
  /** The newest checkpoint that waits for its upload. */
  checkpoint: z.object({ step: z.int(), name: JobFileName }).nullable(),
  /** True once the files of the result are uploaded, or if there are none. In the second case `detail` is the reason. */
  finished: z.boolean(),
  results: z.array(JobFile).nullable(),
  detail: z.string().nullable(),
  skipped_lines: z.int(),
  /** Offset up to which the events file was read. Invalid lines before it are already counted in `skipped_lines`. */
  read_to: z.int(),
  /** How long the program ran. Undefined while it runs, and if the clock was set back meanwhile. */
  ran_ms: ObservedJob.shape.ran_ms,
});
export type JobRecord = z.infer<typeof JobRecord>;

const WorkloadRecord = z.object({
  workload_id: z.string(),
  container_id: z.string().nullable(),
  image_digest: z.string().nullable(),
  /** When the container was made, by the control plane's clock. Null before; undefined if an older agent has made it. */
  made_ms: z.number().nullable().optional(),
  /** True once the guest has connected. For a job: true right before its start, so that a crash cannot lose it. */
  ever_running: z.boolean(),
  failure: z.object({ code: ObservedWorkload.shape.failure_code.unwrap(), detail: z.string() }).nullable(),
  /** True once the control plane has ordered the removal. The order is never taken back. */
  removing: z.boolean(),
  /** Time at which the container was stopped and cut off, in epoch ms by the control plane's clock. */
  stopped_ms: z.number().nullable(),
  /** A tombstone: nothing is left of the workload. Kept so that `removed` can be reported again. */
  gone: z.boolean(),
  changed_ms: z.number(),
  /** State of the job; undefined for other workloads, and before the start of a job. */
  job: JobRecord.optional(),
});
export type WorkloadRecord = z.infer<typeof WorkloadRecord>;

const Tombstones = z.array(WorkloadRecord);

/** A tombstone that the control plane no longer asks about is forgotten after this. */
const TOMBSTONE_MS = 24 * 3_600_000;

export interface Records {
  all(): ReadonlyMap<string, WorkloadRecord>;
  /**
   * Changes one record and stores it; resolves when it is on disk. The change takes effect at once, even if the write fails: a full disk
   * must not prevent the removal of a workload, because that removal frees the disk. A record that does not exist begins empty.
   */
  change(workloadId: string, patch: Partial<Omit<WorkloadRecord, 'workload_id'>>): Promise<void>;
  /** Removes the workload's folder and leaves a tombstone. */
  bury(workloadId: string): Promise<void>;
  /** Tries failed writes again. Never rejects; a write that fails again is tried at the next call. */
  keep(): Promise<void>;
  /** Forgets old tombstones that are not among `wanted`. Never rejects. */
  forgetOld(wanted: ReadonlySet<string>): Promise<void>;
}

interface RecordsDeps {
  files: StateFiles;
  log: Log;
  now: () => number;
}

/** The record of a job whose program starts now. `startedMs` is the control plane's time. */
export function newJobRecord(startedMs: number): JobRecord {
  return {
    started_ms: startedMs,
    exit_code: null,
    stopped_at_limit: false,
    checkpoint: null,
    finished: false,
    results: null,
    detail: null,
    skipped_lines: 0,
    read_to: 0,
  };
}

/** Loads the stored records. A damaged record is logged and begins empty: the container is still found by the engine's labels. */
export async function openRecords(stateDir: string, deps: RecordsDeps): Promise<Records> {
  const { files } = deps;
  const tombstoneFile = join(stateDir, 'tombstones.json');
  const records = await load(stateDir, tombstoneFile, deps);
  const folders = await files.list(join(stateDir, 'workloads'));
  /** Records whose newest version is not on disk yet. A tombstone whose folder is still there is one too: its process ended during the removal. */
  const unstored = new Set(folders.filter((id) => records.get(id)?.gone === true));
  const storeTombstones = (): Promise<void> =>
    files.write(
      tombstoneFile,
      [...records.values()].filter((record) => record.gone),
    );
  const storeNow = async (id: string): Promise<void> => {
    const record = records.get(id);
    const folder = workloadFolder(stateDir, id);
    if (record?.gone === true) {
      await storeTombstones();
      await files.remove(folder);
    } else if (record !== undefined) await files.write(join(folder, 'record.json'), record);
    if (records.get(id) === record) unstored.delete(id);
  };
  /** Writes one after another, each with the newest content: two writers would mix their content in one file. */
  let stored = Promise.resolve();
  const inTurn = (write: () => Promise<void>): Promise<void> => {
    const written = stored.then(write);
    stored = written.catch(() => undefined);
    return written;
  };
  const store = (id: string): Promise<void> => {
    unstored.add(id);
    return inTurn(() => storeNow(id));
  };

  return {
    all: () => records,
    change: (workloadId, patch) => {
      const before = records.get(workloadId) ?? emptyRecord(workloadId);
      records.set(workloadId, { ...before, ...patch, changed_ms: deps.now() });
      return store(workloadId);
    },
    bury: (workloadId) => {
      const before = records.get(workloadId) ?? emptyRecord(workloadId);
      records.set(workloadId, { ...before, removing: true, gone: true, changed_ms: deps.now() });
      return store(workloadId);
    },
    keep: async () => {
      // The first try has reported the reason.
      await Promise.all([...unstored].map((id) => store(id).catch(() => undefined)));
    },
    forgetOld: async (wanted) => {
      const old = [...records.values()].filter(
        (record) => record.gone && !wanted.has(record.workload_id) && record.changed_ms + TOMBSTONE_MS < deps.now(),
      );
      if (old.length === 0) return;
      for (const record of old) records.delete(record.workload_id);
      // If that fails, the next process finds them once more and forgets them. The steps of the runtime must not wait for it.
      await inTurn(storeTombstones).catch(() => undefined);
    },
  };
}

/** Everything of one workload on the host's disk. */
export function workloadFolder(stateDir: string, workloadId: string): string {
  return join(stateDir, 'workloads', workloadId);
}

async function load(
  stateDir: string,
  tombstoneFile: string,
  { files, log }: RecordsDeps,
): Promise<Map<string, WorkloadRecord>> {
  const records = new Map<string, WorkloadRecord>();
  const folder = join(stateDir, 'workloads');
  for (const id of await files.list(folder)) {
    const record = await files.read(join(folder, id, 'record.json'), WorkloadRecord).catch((error: unknown) => {
      log.error(
        { err: error, workload_id: id },
        'the record of a workload is damaged, so it begins empty: the container is still found by the labels of the engine',
      );
      return undefined;
    });
    if (record?.workload_id === id) records.set(id, record);
  }
  const tombstones = await files.read(tombstoneFile, Tombstones).catch((error: unknown) => {
    log.error({ err: error }, 'the list of removed workloads (tombstones.json) is damaged, so it begins empty');
    return undefined;
  });
  for (const tombstone of tombstones ?? []) records.set(tombstone.workload_id, tombstone);
  return records;
}

function emptyRecord(workloadId: string): WorkloadRecord {
  return {
    workload_id: workloadId,
    container_id: null,
    image_digest: null,
    ever_running: false,
    failure: null,
    removing: false,
    stopped_ms: null,
    gone: false,
    changed_ms: 0,
  };
}
