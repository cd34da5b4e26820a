// Programs with limits, files that survive a crash, and the facts of the machine.
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { parseLdd } from '../../../agent/holders/bundle.ts';
import { parseLimits, readBootId, readHostFacts } from '../../../agent/host/facts.ts';
import { run, startDetached } from '../../../agent/host/run.ts';
import { DISK, readJson, writeFileSafely, writeJson } from '../../../agent/host/state.ts';
import { openDesired } from '../../../agent/runtime/desired.ts';
import { openRecords } from '../../../agent/runtime/records.ts';
import { systemClock } from '../../../shared/clock.ts';
import { createLog } from '../../../shared/log.ts';
import type { DesiredMessage } from '../../../shared/protocol/link.ts';
import { eventually } from '../../kit/processes.ts';

const dir = mkdtempSync(join(tmpdir(), 'host-'));
afterAll(() => rmSync(dir, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());
const log = createLog('test', 'silent');

describe('programs', () => {
  test('return their output and exit code; a missing one rejects', async () => {
    expect(await run(['sh', '-c', 'echo a; echo b >&2; exit 3'], { timeoutMs: 5000 })).toEqual({
      code: 3,
      signal: null,
      stdout: 'a\n',
      stderr: 'b\n',
    });
    await expect(run(['/no/such'], { timeoutMs: 5000 })).rejects.toThrow('ENOENT');
  });

  test('that cannot be started for want of a file descriptor reject, and do not end this process', async () => {
    const program = new URL('./out-of-files.ts', import.meta.url).pathname;
    const limited = ['sh', '-c', 'ulimit -n 256; exec "$@"', 'sh', process.execPath, program] as const;
    expect(await run(limited, { timeoutMs: 10_000 })).toMatchObject({ code: 0, stdout: 'spawn true EMFILE' });
  });

  test('are ended if they take too long or write too much', async () => {
    expect((await run(['sleep', '60'], { timeoutMs: 50 })).signal).toBe('SIGKILL');
    const flood = await run(['sh', '-c', 'yes'], { timeoutMs: 10_000, outputBytesMax: 1000 });
    expect(flood.signal).toBe('SIGKILL');
    expect(flood.stdout.length).toBeLessThanOrEqual(1000);
  });

  test('read the given input and nothing else; a program that does not read it is no error', async () => {
    expect((await run(['cat'], { timeoutMs: 5000, input: 'words' })).stdout).toBe('words');
    expect((await run(['cat'], { timeoutMs: 5000 })).stdout).toBe('');
    expect((await run(['true'], { timeoutMs: 5000, input: 'x'.repeat(1_000_000) })).code).toBe(0);
  });

  test('run in their own session and write to their log if they are detached', async () => {
    const file = join(dir, 'log');
    const pid = await startDetached(['sh', '-c', 'echo begun; sleep 60'], file);
    await eventually('output', 5000, () => Promise.resolve(readFileSync(file, 'utf8') === 'begun\n' || undefined));
    const session = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ')[3];
    expect(Number(session)).toBe(pid);
    process.kill(-pid, 'SIGKILL');
  });
});

describe('files', () => {
  test('are replaced whole, private, and leave nothing beside them', async () => {
    const file = join(dir, 'deep/er/state.json');
    await writeJson(file, { a: 1 });
    await writeJson(file, { a: 2 });
    expect(await readJson(file, z.object({ a: z.number() }))).toEqual({ a: 2 });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(join(dir, 'deep')).mode & 0o777).toBe(0o700);
    expect(readdirSync(join(dir, 'deep/er'))).toEqual(['state.json']);
  });

  test('are undefined if they are missing, and an error with their name if they are damaged', async () => {
    expect(await readJson(join(dir, 'none'), z.string())).toBeUndefined();
    await writeFileSafely(join(dir, 'damaged'), '{"half":');
    await expect(readJson(join(dir, 'damaged'), z.string())).rejects.toThrow(`${dir}/damaged is damaged`);
  });

  test('count as nothing held if the desired state is damaged, and the next state is taken', async () => {
    const state = join(dir, 'state');
    await writeFileSafely(join(state, 'desired.json'), 'x');
    const clock = { ...systemClock(), monotonicMs: () => 70 };
    const desired = await openDesired(state, { files: DISK, log, clock, bootId: 'boot' });
    expect(desired.held()).toBeUndefined();
    const message: DesiredMessage = {
      type: 'desired',
      complete: true,
      epoch: 2,
      revision: 5,
      now_ms: 0,
      workloads: [],
    };
    expect(await desired.take(message)).toBe(true);
    expect(await desired.take(message)).toBe(false);
    expect(await desired.take({ ...message, revision: 4 })).toBe(false);
    expect(await desired.take({ ...message, epoch: 1, revision: 9 })).toBe(false);
    expect(await desired.take({ ...message, epoch: 3, revision: 0 })).toBe(true);
    // The control plane's clock stood at 0: that is remembered with the state.
    const again = await openDesired(state, { files: DISK, log, clock, bootId: 'boot' });
    const serverClock = { server_ms: 0, monotonic_ms: 70, boot_id: 'boot' };
    expect(again.held()).toEqual({ epoch: 3, revision: 0, workloads: [], server_clock: serverClock });
  });

  test('cannot store a desired state: it takes effect, and is stored when it is sent again', async () => {
    const state = join(dir, 'full');
    mkdirSync(join(state, 'desired.json.new'), { recursive: true });
    const clock = systemClock();
    const desired = await openDesired(state, { files: DISK, log, clock, bootId: 'boot' });
    const message = { type: 'desired', complete: true, epoch: 1, revision: 1, now_ms: 0, workloads: [] } as const;
    expect(await desired.take({ ...message, workloads: [] })).toBe(true);
    expect(desired.held()).toMatchObject({ revision: 1 });
    expect((await openDesired(state, { files: DISK, log, clock, bootId: 'boot' })).held()).toBeUndefined();
    rmdirSync(join(state, 'desired.json.new'));
    expect(await desired.take({ ...message, workloads: [] })).toBe(false);
    expect((await openDesired(state, { files: DISK, log, clock, bootId: 'boot' })).held()).toMatchObject({
      revision: 1,
    });
  });

  test("keep the control plane's time: it goes on if this host's clock is set, and every message renews it", async () => {
    const state = join(dir, 'clock');
    let [wallMs, monotonicMs] = [1_000_000, 0];
    const clock = { ...systemClock(), now: () => wallMs, monotonicMs: () => monotonicMs };
    const message = { type: 'desired', complete: true, epoch: 1, revision: 1 } as const;
    const desired = await openDesired(state, { files: DISK, log, clock, bootId: 'boot' });
    // A host that has booted with a clock two hours behind.
    await desired.take({ ...message, now_ms: 8_200_000, workloads: [] });
    [wallMs, monotonicMs] = [8_205_000, 5_000];
    expect(desired.serverNowMs()).toBe(8_205_000);
    // After a restart, cut off, with a clock that is a day ahead: the counter of this boot goes on.
    wallMs += 86_400_000;
    const again = await openDesired(state, { files: DISK, log, clock, bootId: 'boot' });
    expect(again.serverNowMs()).toBe(8_205_000);
    // The host has booted: the time is not earlier than the time that was sent, plus the time since the boot.
    monotonicMs = 2_000;
    const booted = await openDesired(state, { files: DISK, log, clock, bootId: 'another boot' });
    expect(booted.serverNowMs()).toBe(8_202_000);
    expect(await booted.take({ ...message, now_ms: 8_300_000, workloads: [] })).toBe(false);
    expect(booted.serverNowMs()).toBe(8_300_000);
  });

  test('keep all changes of one record at the same time', async () => {
    const state = join(dir, 'together');
    const open = (): ReturnType<typeof openRecords> => openRecords(state, { files: DISK, log, now: () => 0 });
    const records = await open();
    await Promise.all([
      records.change('wl_a', { failure: { code: 'start_failed', detail: 'x'.repeat(10_000) } }),
      records.change('wl_a', { failure: null }),
      records.change('wl_a', { ever_running: true }),
      records.change('wl_a', { removing: true }),
    ]);
    expect((await open()).all().get('wl_a')).toMatchObject({ failure: null, ever_running: true, removing: true });
  });

  test('keep records over a restart; a damaged record begins empty, and old tombstones are forgotten', async () => {
    const state = join(dir, 'records');
    let nowMs = 0;
    const open = (): ReturnType<typeof openRecords> => openRecords(state, { files: DISK, log, now: () => nowMs });
    const records = await open();
    await records.change('wl_a', { container_id: 'c' });
    await records.change('wl_b', { removing: true });
    await records.change('wl_c', {});
    await records.bury('wl_b');
    writeFileSync(join(state, 'workloads/wl_c/record.json'), '{');
    const again = await open();
    expect(again.all().get('wl_a')).toMatchObject({ container_id: 'c', gone: false });
    expect(again.all().get('wl_b')).toMatchObject({ gone: true, removing: true });
    expect(again.all().has('wl_c')).toBe(false);
    nowMs = 25 * 3_600_000;
    await again.forgetOld(new Set(['wl_b']));
    expect(again.all().has('wl_b')).toBe(true);
    await again.forgetOld(new Set());
    expect((await open()).all().has('wl_b')).toBe(false);
  });
});

describe('facts', () => {
  test('include cores, memory, a disk and a boot id', async () => {
    const facts = await readHostFacts('/');
    for (const value of [facts.cpu_cores, facts.ram_bytes, facts.storage_bytes]) expect(value).toBeGreaterThan(0);
    expect(await readBootId()).toMatch(/^[0-9a-f-]{36}$/);
  });

  test('are read although another file system of this host does not answer', async () => {
    // On such a host, a program that asks all file systems for their sizes never ends.
    writeFileSync(join(dir, 'df'), '#!/bin/sh\nexec sleep 30\n', { mode: 0o755 });
    vi.stubEnv('PATH', `${dir}:${process.env['PATH']}`);
    const { storage_bytes: bytes } = await readHostFacts(join(dir, 'not', 'there', 'yet'));
    const { blocks, bsize } = statfsSync(dir);
    expect(bytes).toBe(blocks * bsize);
  });

  test('include raised limits only if the machine allows them', () => {
    const limits = 'Max open files  1024  20000  files\nMax locked memory  8388608  8388608  bytes\n';
    expect(parseLimits('CapBnd:\t000001ffffffffff\n', limits)).toEqual({ memlock_bytes: -1, nofile: 1_048_576 });
    expect(parseLimits('CapBnd:\t000001fffeffffff\n', limits)).toEqual({ memlock_bytes: 8_388_608, nofile: 20_000 });
    const open = 'Max open files  1  unlimited  files\nMax locked memory  1  unlimited  bytes\n';
    expect(parseLimits('CapBnd:\t0\n', open)).toEqual({ memlock_bytes: -1, nofile: 1_048_576 });
  });

  test('include the libraries and the loader from the output of ldd', () => {
    const text = `/usr/bin/node:
\tlinux-vdso.so.1 (0x00007ffd)
\tlibdl.so.2 => /lib/x86_64-linux-gnu/libdl.so.2 (0x00007f1)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f2)
/pty.node:
\tlibdl.so.2 => /lib/x86_64-linux-gnu/libdl.so.2 (0x00007f3)
\tlibutil.so.1 => /lib/x86_64-linux-gnu/libutil.so.1 (0x00007f4)
`;
    expect(parseLdd(text)).toEqual({
      loader: '/lib64/ld-linux-x86-64.so.2',
      files: ['/lib/x86_64-linux-gnu/libdl.so.2', '/lib/x86_64-linux-gnu/libutil.so.1'],
    });
  });
});
