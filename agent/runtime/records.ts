// What this host remembers about each workload beyond what the engine knows: failures, the two-phase removal, tombstones.
import { join } from 'node:path';
import { z } from 'zod';
import type { Log } from '../../shared/log.ts';
import { ObservedWorkload } from '../../shared/protocol/workload.ts';
import type { StateFiles } from '../host/state.ts';

const WorkloadRecord = z.strictObject({
  workload_id: z.string(),
  container_id: z.string().nullable(),
  image_digest: z.string().nullable(),
  /** Its holder has answered from inside at least once. */
  ever_running: z.boolean(),
  failure: z.strictObject({ code: ObservedWorkload.shape.failure_code.unwrap(), detail: z.string() }).nullable(),
  /** The order to remove it has come; it is never taken back. */
  removing: z.boolean(),
  /** Epoch ms at which it was stopped and cut off, by the control plane's clock. */
  stopped_ms: z.number().nullable(),
  /** Nothing is left of it; kept so that this can be said again. Epoch ms. */
  gone: z.boolean(),
  changed_ms: z.number(),
});
export type WorkloadRecord = z.infer<typeof WorkloadRecord>;

const Tombstones = z.array(WorkloadRecord);

/** A tombstone that the control plane no longer asks about is forgotten after this. */
const TOMBSTONE_MS = 24 * 3_600_000;

export interface Records {
  all(): ReadonlyMap<string, WorkloadRecord>;
  /**
   * Changes one record and stores it; resolves when it is on disk. It counts from the call on, also where the disk does not take it: a
   * full one must not keep a workload from being removed, which frees it. A record that does not exist begins empty.
   */
  change(workloadId: string, patch: Partial<Omit<WorkloadRecord, 'workload_id'>>): Promise<void>;
  /** The workload's folder goes, a tombstone stays. */
  bury(workloadId: string): Promise<void>;
  /** Tries again to store what the disk did not take. Never rejects: what it does not take this time either is tried at the next call. */
  keep(): Promise<void>;
  /** Forgets old tombstones that are not among `wanted`. */
  forgetOld(wanted: ReadonlySet<string>): Promise<void>;
}

interface RecordsDeps {
  files: StateFiles;
  log: Log;
  now: () => number;
}

/** Loads what an earlier process stored. A damaged record is logged and begins anew: the engine's labels still know the container. */
export async function openRecords(stateDir: string, deps: RecordsDeps): Promise<Records> {
  const { files } = deps;
  const tombstoneFile = join(stateDir, 'tombstones.json');
  const records = await load(stateDir, tombstoneFile, deps);
  /** What is on disk is older, or the disk did not take it. */
  const unstored = new Set<string>();
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
  /** One after another, each with what is known by then: two writers of one file would mix. */
  let stored = Promise.resolve();
  const store = (id: string): Promise<void> => {
    unstored.add(id);
    const write = stored.then(() => storeNow(id));
    stored = write.catch(() => undefined);
    return write;
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
      // Why the disk does not take it was said at the first try.
      await Promise.all([...unstored].map((id) => store(id).catch(() => undefined)));
    },
    forgetOld: async (wanted) => {
      const old = [...records.values()].filter(
        (record) => record.gone && !wanted.has(record.workload_id) && record.changed_ms + TOMBSTONE_MS < deps.now(),
      );
      if (old.length === 0) return;
      for (const record of old) records.delete(record.workload_id);
      await storeTombstones();
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
      log.error({ err: error, workload_id: id }, 'a workload record is damaged and begins anew');
      return undefined;
    });
    if (record?.workload_id === id) records.set(id, record);
  }
  const tombstones = await files.read(tombstoneFile, Tombstones).catch((error: unknown) => {
    log.error({ err: error }, 'the tombstones are damaged and begin anew');
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
