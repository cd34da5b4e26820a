// What the agent keeps on its disk: the newest desired state with the control plane's time, and a record for each workload.
import { beforeEach, describe, expect, test } from 'vitest';
import { type Desired, openDesired } from '../../../agent/runtime/desired.ts';
import { newJobRecord, openRecords, type Records, type WorkloadRecord } from '../../../agent/runtime/records.ts';
import { createLog } from '../../../shared/log.ts';
import type { DesiredMessage } from '../../../shared/protocol/link.ts';
import { virtualClock, type VirtualClock } from '../../kit/virtual-clock.ts';
import { type Disk, openDisk } from '../../sim/disk.ts';
import { desiredWorkload } from '../desired-workload.ts';

const DAY_MS = 24 * 3_600_000;
const SERVER_MS = 5_000_000;

let clock: VirtualClock;
let disk: Disk;
let alarms: number;
const log = createLog('test', 'error', { write: () => void (alarms += 1) });
beforeEach(() => {
  clock = virtualClock(1_000_000);
  disk = openDisk(clock);
  alarms = 0;
});

describe('a desired state', () => {
  const open = (bootId = 'boot'): Promise<Desired> => openDesired('state', { files: disk.files, log, clock, bootId });
  const message = (epoch: number, revision: number): DesiredMessage => ({
    type: 'desired',
    epoch,
    revision,
    complete: true,
    now_ms: SERVER_MS,
    workloads: [desiredWorkload(`w-${epoch}-${revision}`, 'image')],
  });

  test.each([
    [2, 41, true],
    [3, 1, true],
    [2, 40, false],
    [2, 39, false],
    [1, 99, false],
  ])('of epoch %d and revision %d replaces that of 2 and 40: %s', async (epoch, revision, isTaken) => {
    const desired = await open();
    expect(desired.held()).toBeUndefined();
    expect(await desired.take(message(2, 40))).toBe(true);
    expect(await desired.take(message(epoch, revision))).toBe(isTaken);
    const kept = isTaken ? { epoch, revision } : { epoch: 2, revision: 40 };
    expect(desired.held()).toMatchObject(kept);
    expect((await open()).held()).toMatchObject(kept);
  });

  test('of an old connection does not replace a newer one that waits for its write', async () => {
    const desired = await open();
    const [first, newest] = [desired.take(message(1, 4)), desired.take(message(1, 6))];
    // An old connection takes one after another, so its second one comes when its first one is written.
    await first;
    expect(await desired.take(message(1, 5))).toBe(false);
    expect(await newest).toBe(true);
    expect(desired.held()?.revision).toBe(6);
    expect((await open()).held()?.revision).toBe(6);
  });

  test('has the time of the control plane, whatever the clock of this host shows', async () => {
    const desired = await open();
    expect(desired.serverNowMs()).toBe(clock.now());
    await desired.take(message(1, 1));
    clock.jump(60_000);
    expect(desired.serverNowMs()).toBe(SERVER_MS + 60_000);
    expect((await open()).serverNowMs()).toBe(SERVER_MS + 60_000);
    await desired.take(message(1, 1));
    expect(desired.serverNowMs()).toBe(SERVER_MS);
  });

  test('has after a reboot a time that is behind, never ahead', async () => {
    const desired = await open();
    clock.jump(10_000);
    await desired.take(message(1, 1));
    const monotonicMs = clock.monotonicMs();
    expect((await open('another boot')).serverNowMs()).toBe(SERVER_MS + monotonicMs);
    expect((await open('boot')).serverNowMs()).toBe(SERVER_MS);
    const rebooted = await open('another boot');
    expect([rebooted.knowsTime(), (await open('boot')).knowsTime()]).toEqual([false, true]);
    await rebooted.take(message(1, 1));
    expect(rebooted.knowsTime()).toBe(true);
  });

  test('that is damaged counts as none', async () => {
    await disk.files.write('state/desired.json', { epoch: 1 });
    expect((await open()).held()).toBeUndefined();
    expect(alarms).toBe(1);
  });

  test('that cannot be stored counts for this process, with one line in the log', async () => {
    const desired = await open();
    disk.isFull = true;
    for (const revision of [1, 2]) await desired.take(message(1, revision));
    await desired.keep();
    expect([desired.held()?.revision, alarms]).toEqual([2, 1]);
    disk.isFull = false;
    // An older message is a chance to store it, too.
    await desired.take(message(1, 1));
    expect((await open()).held()?.revision).toBe(2);
  });
});

describe('the record of a workload', () => {
  const open = (): Promise<Records> => openRecords('state', { files: disk.files, log, now: clock.now });

  test('begins empty, and keeps what is changed', async () => {
    const records = await open();
    await records.change('w', { container_id: 'c' });
    clock.jump(1_000);
    await records.change('w', { ever_running: true });
    const record = {
      workload_id: 'w',
      container_id: 'c',
      image_digest: null,
      ever_running: true,
      failure: null,
      removing: false,
      stopped_ms: null,
      gone: false,
      changed_ms: clock.now(),
    };
    for (const each of [records, await open()]) expect([...each.all()]).toEqual([['w', record]]);
  });

  test('has the run time of a job also after a restart of the agent, and none if an older agent has written it', async () => {
    const job = { ...newJobRecord(1), exit_code: 0 };
    const records = await open();
    await records.change('new', { job: { ...job, ran_ms: 5_000 } });
    await records.change('old', { job });
    const again = await open();
    expect(again.all().get('new')?.job).toEqual({ ...job, ran_ms: 5_000 });
    expect(again.all().get('old')?.job).toEqual(job);
  });

  test('is read without its unknown members if a newer agent has written it, before it was rolled back', async () => {
    const records = await open();
    await records.change('w', {
      container_id: 'c',
      failure: { code: 'start_failed', detail: 'x' },
      job: newJobRecord(1),
    });
    await records.bury('gone');
    const later = ({ job, failure, ...record }: WorkloadRecord): object => ({
      ...record,
      failure: failure && { ...failure, since: 1 },
      ...(job && { job: { ...job, node: 1 } }),
      restarts: 1,
    });
    const [w, gone] = [...records.all().values()];
    await disk.files.write('state/workloads/w/record.json', later(w as WorkloadRecord));
    await disk.files.write('state/tombstones.json', [later(gone as WorkloadRecord)]);
    expect([...(await open()).all()]).toEqual([...records.all()]);
    expect(alarms).toBe(0);
  });

  test('becomes a tombstone that outlasts its folder', async () => {
    const records = await open();
    await records.change('w', { container_id: 'c' });
    await records.bury('w');
    await records.bury('never seen');
    expect(await disk.files.list('state/workloads')).toEqual([]);
    for (const each of [records, await open()]) {
      expect(each.all().get('w')).toMatchObject({ gone: true, removing: true, container_id: 'c' });
      expect(each.all().get('never seen')).toMatchObject({ gone: true, removing: true, container_id: null });
    }
  });

  test('is forgotten a day after the end, if nobody asks for it any more', async () => {
    const records = await open();
    await records.bury('old');
    await records.bury('wanted');
    await records.change('living', { container_id: 'c' });
    clock.jump(DAY_MS);
    await records.forgetOld(new Set(['wanted']));
    expect([...records.all().keys()]).toEqual(['old', 'wanted', 'living']);
    clock.jump(1);
    await records.forgetOld(new Set(['wanted']));
    expect([...records.all().keys()]).toEqual(['wanted', 'living']);
    expect([...(await open()).all().keys()].toSorted()).toEqual(['living', 'wanted']);
  });

  test('never has two writers of one file, which would mix their content', async () => {
    const atWork = new Map<string, number>();
    const atOnce: number[] = [];
    const files: Disk['files'] = {
      ...disk.files,
      write: async (file, value) => {
        atWork.set(file, (atWork.get(file) ?? 0) + 1);
        atOnce.push(atWork.get(file) ?? 0);
        await disk.files.write(file, value);
        atWork.set(file, (atWork.get(file) ?? 0) - 1);
      },
    };
    const records = await openRecords('state', { files, log, now: clock.now });
    await records.bury('old');
    clock.jump(DAY_MS + 1);
    await Promise.all([records.bury('new'), records.forgetOld(new Set()), records.change('w', {})]);
    expect(new Set(atOnce)).toEqual(new Set([1]));
    expect([...(await open()).all().keys()].toSorted()).toEqual(['new', 'w']);
  });

  test('that is damaged, or lies in a foreign folder, counts as none, and the others are read', async () => {
    const records = await open();
    for (const id of ['good', 'moved']) await records.change(id, { container_id: 'c' });
    const moved: unknown = records.all().get('moved');
    await disk.files.write('state/workloads/other/record.json', moved);
    await disk.files.write('state/workloads/bad/record.json', { workload_id: 'bad' });
    await disk.files.write('state/tombstones.json', [{}]);
    expect([...(await open()).all().keys()].toSorted()).toEqual(['good', 'moved']);
    expect(alarms).toBe(2);
  });
});
