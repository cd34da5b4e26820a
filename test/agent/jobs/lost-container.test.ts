// A job whose program has ended, while its engine does not list its container: its files are not lost before that is certain.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Jobs, openJobs } from '../../../agent/jobs/jobs.ts';
import { openDocker } from '../../../agent/runtime/docker.ts';
import { newJobRecord, openRecords, type Records } from '../../../agent/runtime/records.ts';
import { createLog } from '../../../shared/log.ts';
import { eventually } from '../../kit/processes.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';
import { openDisk } from '../../sim/disk.ts';
import { openScriptedEngine, type ScriptedEngine } from '../runtime/scripted-engine.ts';

const LISTING = 'GET /containers/json';
const OURS = { Id: 'c-1', State: 'exited', Labels: { 'svc.workload_id': 'w' }, Mounts: [], HostConfig: {} };
const log = createLog('test', 'silent');

let clock: VirtualClock;
let script: ScriptedEngine;
let records: Records;
let jobs: Jobs;
beforeEach(async () => {
  clock = virtualClock();
  script = await openScriptedEngine();
  records = await openRecords('state', { files: openDisk(clock).files, log, now: clock.now });
  await records.change('w', { container_id: 'c-1', ever_running: true, job: { ...newJobRecord(0), exit_code: 0 } });
  jobs = openJobs({
    clock,
    log,
    stateDir: 'state',
    ca: undefined,
    engine: openDocker({ socketPath: script.socketPath, machineId: 'm' }),
    desired: { held: () => undefined },
    records,
    link: { url: async () => ({ kind: 'stored' }), events: async () => 0 },
    onChange: () => undefined,
  });
});
afterEach(async () => {
  await jobs.stop();
  await script.close();
});

const asked = (line: string): number => script.lines().filter((each) => each === line).length;
const until = (what: string, is: () => boolean): Promise<unknown> =>
  eventually(what, 5_000, async () => (await clock.advance(5_000), is() || undefined));

test('a job does not end without a result because the disk with its container is away', async () => {
  await until('several questions for its files', () => asked(LISTING) > 3);
  expect(records.all().get('w')?.job).toMatchObject({ finished: false, detail: null });
  script.answers.set(LISTING, { body: [OURS] });
  script.answers.set('GET /containers/c-1/archive', { status: 404 });
  await until('end of the job', () => records.all().get('w')?.job?.finished === true);
  expect(records.all().get('w')?.job?.detail).toBe('the program has left no result.json');
});
