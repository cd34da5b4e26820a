// GPUs inside real containers: a workload starts only where it sees exactly its own, nobody inside can write the kernel's log, and a host whose
// engine gives no GPUs any more offers none.
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startAgentWorld, type AgentWorld } from '../agent-world.ts';
import { GPU_DIR } from '../../kit/engine.ts';
import { busyboxImage, type TestImage } from '../../kit/images.ts';
import { eventually } from '../../kit/processes.ts';

const dir = mkdtempSync(join(tmpdir(), 'gpus-'));
const faults = join(dir, 'faults');
const hookDir = join(dir, 'hooks');
let world: AgentWorld;
let image: TestImage;
let uuids: string[];

beforeAll(async () => {
  cpSync(GPU_DIR, hookDir, { recursive: true });
  world = await startAgentWorld({ quarantineMinutes: 0, engineEnv: { FAKE_GPU_FAULTS: faults }, hookDir });
  image = await busyboxImage(world.registry);
  uuids = await eventually('an inventory', 10_000, async () => {
    const gpus = world.plane.hellos.at(-1)?.inventory.gpus ?? [];
    return gpus.length === 4 ? gpus.map(({ uuid }) => uuid) : undefined;
  });
});
afterAll(async () => {
  await world.stop();
  rmSync(dir, { recursive: true });
});

async function logOf(workloadId: string): Promise<string> {
  const [found] = await world.engine.docker.listContainers({
    all: true,
    filters: { label: [`svc.workload_id=${workloadId}`] },
  });
  const log = await world.engine.docker
    .getContainer(found?.Id ?? '')
    .logs({ stdout: true, stderr: true, follow: false });
  return log.toString();
}

test('a container that lacks one of its GPUs runs nothing of the tenant and fails with that reason; one that has them runs', async () => {
  const [a = '', b = '', c = ''] = uuids;
  writeFileSync(faults, `${b},hidden\n`);
  const entrypoint = ['sh', '-c', 'echo the tenant runs; sleep 600'];
  world.plane.desire([
    world.workload('wl_whole', image.pinnedRef, { gpu_uuids: [c], command: { entrypoint, cmd: null } }),
    world.workload('wl_lacks', image.pinnedRef, { gpu_uuids: [a, b], command: { entrypoint, cmd: null } }),
  ]);
  const failed = await world.plane.phase('wl_lacks', 'failed');
  expect(failed).toMatchObject({
    failure_code: 'gpu_unavailable',
    detail: expect.stringContaining('does not see exactly'),
  });
  const said = await logOf('wl_lacks');
  expect(said).toContain(`it was given ${a}, ${b} and sees ${a}`);
  expect(said).not.toContain('the tenant runs');
  await world.plane.phase('wl_whole', 'running');
  // The container counts as running before its program has written a line.
  await eventually('the output of the tenant', 10_000, async () =>
    (await logOf('wl_whole')).includes('the tenant runs') ? true : undefined,
  );
});

test('the figures of a real container are sent with the GPUs that it has, and quickly while somebody looks', async () => {
  const [, , , d = ''] = uuids;
  const entrypoint = ['sh', '-c', 'while :; do :; done'];
  world.plane.desire([
    world.workload('wl_busy', image.pinnedRef, { gpu_uuids: [d], command: { entrypoint, cmd: null } }),
  ]);
  await world.plane.phase('wl_busy', 'running');
  world.plane.send({ type: 'watch', for_ms: 30_000 });
  const cpuSeconds = (): number[] =>
    world.plane.samples.flatMap(({ containers }) => containers.map(({ cpu_seconds: seconds }) => seconds ?? 0));
  await eventually('three samples', 20_000, async () => cpuSeconds().length >= 3 || undefined);
  const [first = 0, ...later] = cpuSeconds();
  expect(later.at(-1)).toBeGreaterThan(first);
  const last = world.plane.samples.at(-1);
  expect(last?.gpus.find(({ uuid }) => uuid === d)).toMatchObject({ workload_id: 'wl_busy', power_watts: 71.2 });
  expect(last?.gpus).toHaveLength(4);
  expect(last?.containers).toMatchObject([{ workload_id: 'wl_busy', network_sent_bytes: expect.any(Number) }]);
  expect(last?.containers[0]?.memory_limit_bytes).toBeGreaterThan(0);
  expect(last?.host?.cpu_cores).toBeGreaterThan(0);
});

test("nobody inside can write a line into the kernel's log, also not through a device of their own", async () => {
  const line = 'NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus.';
  const attack = `mknod /tmp/kmsg c 1 11; for f in /dev/kmsg /tmp/kmsg; do echo "${line}" > $f && [ -c $f ] && echo written; done; echo tried; sleep 600`;
  world.plane.desire([
    world.workload('wl_attacks', image.pinnedRef, { command: { entrypoint: ['sh', '-c', attack], cmd: null } }),
  ]);
  await world.plane.phase('wl_attacks', 'running');
  const said = await eventually('the attack', 10_000, async () => {
    const text = await logOf('wl_attacks');
    return text.includes('tried') ? text : undefined;
  });
  expect(said).not.toContain('written');
});

test('once the engine gives no GPUs any more, a launch fails and the host offers none, but what runs goes on', async () => {
  const [a = '', b = ''] = uuids;
  writeFileSync(faults, '');
  const older = world.workload('wl_older', image.pinnedRef, { gpu_uuids: [a] });
  world.plane.desire([older]);
  await world.plane.phase('wl_older', 'running');
  expect(world.plane.inventory()?.gpu_faults).toEqual([]);
  rmSync(join(hookDir, 'nvidia-container-runtime-hook'));
  world.plane.desire([older, world.workload('wl_next', image.pinnedRef, { gpu_uuids: [b] })]);
  expect(await world.plane.phase('wl_next', 'failed')).toMatchObject({ failure_code: 'gpu_unavailable' });
  const found = await eventually('faults', 30_000, async () => {
    const told = world.plane.inventory()?.gpu_faults ?? [];
    return told.length === 0 ? undefined : told;
  });
  const detail = expect.stringContaining('install the NVIDIA Container Toolkit, then systemctl restart docker');
  expect(found).toEqual(uuids.map((uuid) => ({ uuid, severity: 'unfit', detail })));
  await world.plane.phase('wl_older', 'running');
  const { stdout } = await world.svcAgent('status');
  expect(stdout.toString()).toContain(`gpu ${a} is unfit: Docker cannot give a GPU to a container: install`);
});
