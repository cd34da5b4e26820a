// The command `svc` as a process of its own, against real daemons and with the OpenSSH client.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { capture } from '../kit/capture.ts';
import { ONE_GPU, openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { requireProgram } from '../kit/setup.ts';

const SVC = resolve(import.meta.dirname, '../../control-plane/svc.js');

let stack: RentalStack;
let home: string;
beforeAll(async () => {
  stack = await openRentalStack();
  home = mkdtempSync(join(tmpdir(), 'svc-home-'));
  addOpenSsh();
});
afterAll(async () => {
  rmSync(home, { recursive: true });
  expect(await stack.end()).toEqual([]);
});

/** The programs of the system. The names of hosts have no address here, so a proxy leads to this machine. */
function addOpenSsh(): void {
  mkdirSync(join(home, 'bin'));
  const proxy = `${requireProgram('busybox')} nc 127.0.0.1 %p`;
  const options = `-F none -o IdentitiesOnly=yes -o "ProxyCommand=${proxy}"`;
  for (const name of ['ssh', 'scp']) {
    const program = join(requireProgram('ssh'), '..', name);
    writeFileSync(join(home, 'bin', name), `#!/bin/sh\nexec ${program} ${options} "$@"\n`, { mode: 0o755 });
  }
}

interface Result {
  code: number | null;
  stdout: string;
  stderr: string;
}

async function svc(...args: string[]): Promise<Result> {
  const env = {
    HOME: home,
    XDG_CONFIG_HOME: join(home, 'my config'),
    PATH: `${join(home, 'bin')}:${process.env['PATH'] ?? ''}`,
    SVC_API_KEY: stack.customer.key,
    SVC_BASE_URL: stack.controlPlane.baseUrl,
  };
  const { code, stdout, stderr } = await capture([process.execPath, SVC, ...args], { env, timeoutMs: 120_000 });
  return { code, stdout: stdout.toString(), stderr };
}

test('svc launches an instance, waits, logs in, copies, reads its log and ends it', async () => {
  const launch = ['--image', stack.image.ref, '--gpu-type', ONE_GPU.gpu_type, '--name', 'train', '--wait', '-q'];
  const program = ['sh', '-c', 'echo begin; exec sleep 3600'];
  const created = await svc('instance', 'create', ...launch, '--', ...program);
  expect(created).toMatchObject({ code: 0 });
  const id = created.stdout.trim();
  expect(id).toMatch(/^i-/);
  expect(created.stderr.split('\n').at(-2)).toBe(`${id} running`);

  const key = ['-i', stack.customer.identity.keyFile];
  expect(await svc('ssh', 'train', ...key, 'hostname')).toMatchObject({ code: 0, stdout: `${id}\n` });
  expect((await svc('ssh', 'train', ...key, 'exit 42')).code).toBe(42);
  const copy = join(home, 'hostname');
  expect(await svc('cp', ...key, 'train:/etc/hostname', copy)).toMatchObject({ code: 0 });
  expect(readFileSync(copy, 'utf8')).toBe(`${id}\n`);
  expect((await svc('logs', 'train', '--tail', '10')).stdout).toBe('begin\n');
  const reachable = await svc('wait', 'train', '--timeout', '1', '--json');
  expect(JSON.parse(reachable.stdout)).toMatchObject({ id, status: 'running' });

  const ended = await svc('instance', 'delete', 'train', '--wait', '--json');
  expect(ended).toMatchObject({ code: 0 });
  expect(JSON.parse(ended.stdout)).toMatchObject({ kind: 'instance.delete' });
  // What has ended can still be read by its name, and not ended again.
  const read = await svc('instance', 'get', 'train', '--json');
  expect(JSON.parse(read.stdout)).toMatchObject({ id, status: 'terminated' });
  expect((await svc('instance', 'delete', 'train')).code).toBe(3);
});

test('svc run follows the output of a program, exits with its code and removes the instance', async () => {
  const launch = ['--image', stack.image.ref, '--gpu-type', ONE_GPU.gpu_type, '--rm'];
  const program = ['sh', '-c', 'i=0; while [ $i -lt 500 ]; do echo $i; i=$((i + 1)); done; exit 7'];
  const ran = await svc('run', ...launch, '--', ...program);
  expect(ran).toMatchObject({ code: 7, stdout: Array.from({ length: 500 }, (_, i) => `${i}\n`).join('') });
  const [id = ''] = ran.stderr.split('\n');
  expect((await svc('wait', id, '--for', 'terminated')).code).toBe(0);
});

/** What an instance shows that has ended by itself. Its container is gone by then. */
async function endedBy(id: string): Promise<Record<string, unknown>> {
  expect((await svc('wait', id, '--for', 'terminated', '--timeout', '60')).code).toBe(0);
  return JSON.parse((await svc('instance', 'get', id, '--json')).stdout) as Record<string, unknown>;
}

const EXITS_3 = ['sh', '-c', 'i=0; while [ $i -lt 500 ]; do echo $i; i=$((i + 1)); done; echo last >&2; exit 3'];
const PRINTED = Array.from({ length: 500 }, (_, i) => `${i}\n`).join('');
const REASON = 'The main process exited with code 3.';
const ENDED = { status: 'terminated', status_reason: REASON, main_exit: { code: 3, signal: null } };

test('an instance of svc run ends with its program also if nobody deletes it, and its whole log can be read after that', async () => {
  const ran = await svc('run', '--image', stack.image.ref, '--gpu-type', ONE_GPU.gpu_type, '--', ...EXITS_3);
  expect(ran).toMatchObject({ code: 3, stdout: PRINTED });
  expect(ran.stderr).toContain('\nlast\n');
  const [id = ''] = ran.stderr.split('\n');
  expect(await endedBy(id)).toMatchObject(ENDED);
  const log = await svc('logs', id, '--tail', '1000');
  expect(log).toMatchObject({ code: 0, stdout: PRINTED, stderr: 'last\n' });
  expect(await svc('logs', id, '--follow', '--tail', '1000')).toEqual(log);
});

test('a job that nobody follows ends by itself with its exit code, its whole log and a bill', async () => {
  const launch = ['--image', stack.image.ref, '--gpu-type', ONE_GPU.gpu_type, '--auto-terminate-on-exit', '--json'];
  const slow = ['sh', '-c', `sleep 3; ${EXITS_3.at(-1) ?? ''}`];
  const launched = await svc('instance', 'create', ...launch, '--wait', '--', ...slow);
  const { id } = JSON.parse(launched.stdout) as { id: string };
  expect(await endedBy(id)).toMatchObject({ ...ENDED, auto_terminate_on_exit: true });
  expect(await svc('logs', id, '--tail', '1000')).toMatchObject({ code: 0, stdout: PRINTED, stderr: 'last\n' });
  const bill = await stack.customer.api.get(
    `/instances/${id}/bill`,
    z.object({ totals: z.object({ cost: z.string() }) }),
  );
  expect(Number(bill.totals.cost)).toBeGreaterThan(0);
});

test('a job whose container is killed ends with the reason and its log, and does not run a second time', async () => {
  const launch = ['--image', stack.image.ref, '--gpu-type', ONE_GPU.gpu_type, '--auto-terminate-on-exit', '--json'];
  const launched = await svc('instance', 'create', ...launch, '--wait', '--', 'sh', '-c', 'echo begin; sleep 600');
  const { id } = JSON.parse(launched.stdout) as { id: string };
  const { docker } = stack.engine;
  const [container] = await docker.listContainers({ filters: { label: [`svc.instance_id=${id}`] } });
  await docker.getContainer(container?.Id ?? '').kill();
  const shown = async (): Promise<unknown> => JSON.parse((await svc('instance', 'get', id, '--json')).stdout);
  const status_reason = 'The container died on its host, and the program with it. The program was not started again.';
  await expect.poll(shown, { timeout: 60_000 }).toMatchObject({ status: 'error', status_reason });
  expect(await svc('logs', id, '--tail', '1000')).toMatchObject({ code: 0, stdout: 'begin\n' });
});

test('svc run of a program that a signal ends exits as a shell does', async () => {
  const launch = ['--image', stack.image.ref, '--gpu-type', ONE_GPU.gpu_type, '--rm'];
  const ran = await svc('run', ...launch, '--', 'sh', '-c', 'echo begin; kill -9 $$');
  expect(ran).toMatchObject({ code: 137, stdout: 'begin\n' });
});

test('svc doctor prints one document, and nothing of the programs that it tries', async () => {
  const { stdout } = await svc('doctor', '--json');
  expect(JSON.parse(stdout)).toMatchObject({
    checks: expect.arrayContaining([expect.objectContaining({ check: 'ssh', ok: true })]) as unknown,
  });
});
