// The files that a job reads: fetched before its container is created, and mounted read-only.
import { access, mkdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import type { JobFile } from '../../shared/protocol/job.ts';
import type { DesiredWorkload } from '../../shared/protocol/workload.ts';
import { writeFileSafely } from '../host/state.ts';
import type { Mount } from '../runtime/engine.ts';
import { workloadFolder } from '../runtime/records.ts';
import { type JobLink, download } from './transfer.ts';

const CONFIG_FILE = 'job.json';
const RETRY_MS = 5_000;

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
  await writeFileSafely(join(folder, CONFIG_FILE), job.config, 0o644);
  for (const file of job.inputs) await fetchInput(id, folder, file, deps);
  return [CONFIG_FILE, ...job.inputs.map(({ name }) => name)].map((name) => ({
    source: join(folder, name),
    target: `/job/${name}`,
  }));
}

/** Tries again until it succeeds: a control plane or a network that is away is not the job's fault. */
async function fetchInput(id: string, folder: string, file: JobFile, deps: InputsDeps): Promise<void> {
  const path = join(folder, file.name);
  if (await exists(path)) return;
  for (;;) {
    if (!deps.isWanted(id)) throw new Error('the job is not wanted here any more');
    try {
      const answer = await deps.link.url(id, { kind: 'input', name: file.name });
      if (answer.kind !== 'url')
        throw new Refused(answer.kind === 'refused' ? answer.detail : 'there is nothing to fetch');
      await download(answer, `${path}.new`, file, deps);
      // A file gets its final name only after its bytes were verified.
      return await rename(`${path}.new`, path);
    } catch (error) {
      if (error instanceof Refused || deps.signal.aborted) throw error;
      deps.log.warn(
        { workload_id: id, file: file.name, detail: messageOf(error) },
        'an input of a job is fetched again',
      );
      await deps.clock.sleep(RETRY_MS, deps.signal);
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
