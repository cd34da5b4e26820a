// What must survive: killed supervisors and holders, restarted engines, old and empty lists, and the two phases of a removal.
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startAgentWorld, type AgentWorld } from '../agent-world.ts';
import { ssh, sshArgs, type SshTarget } from '../../kit/ssh-client.ts';
import { engineContents, withoutSpare } from '../../kit/engine.ts';
import { busyboxImage, type TestImage } from '../../kit/images.ts';
import { eventually } from '../../kit/processes.ts';

const ID = 'wl_main';
const contents = async (): Promise<string[]> => withoutSpare(await engineContents(world.engine.docker));
/** Long enough to be seen, short enough to be waited for. */
const QUARANTINE_MINUTES = 0.1;
let world: AgentWorld;
let target: SshTarget;
let image: TestImage;

beforeAll(async () => {
  world = await startAgentWorld({ quarantineMinutes: QUARANTINE_MINUTES });
  image = await busyboxImage(world.registry);
  const key = await world.identity('user');
  world.plane.desire([world.workload(ID, image.pinnedRef)]);
  await world.plane.phase(ID, 'running');
  const keys = { authorized_keys: [key.publicKey] };
  target = { port: await world.plane.sshPort(ID, () => keys), keyFile: key.keyFile };
});

afterAll(async () => {
  await world.stop();
});

/** Identity of the container and of its start. */
async function container(): Promise<string> {
  const listed = await world.engine.docker.listContainers({ filters: { label: [`svc.workload_id=${ID}`] } });
  const id = listed[0]?.Id ?? 'none';
  const { State: state } = await world.engine.docker.getContainer(id).inspect();
  return `${id} ${state.StartedAt} of ${listed.length}`;
}

interface Conversation {
  say(text: string): Promise<string>;
  child: ChildProcess;
}

/** One ssh session that answers line by line for as long as it lives. */
function converse(): Conversation {
  const child = spawn('ssh', [...sshArgs(target), 'root@127.0.0.1', 'cat'], { stdio: ['pipe', 'pipe', 'ignore'] });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  return {
    child,
    say: async (text) => {
      child.stdin.write(`${text}\n`);
      await eventually(`echo of ${text}`, 10_000, () => Promise.resolve(output.includes(text) ? true : undefined));
      return text;
    },
  };
}

test('after kill -9 of the supervisor, the container and the session go on, and the next supervisor adopts both', async () => {
  const before = await container();
  const holder = world.holderPid(ID);
  const session = converse();
  await session.say('before');
  process.kill(world.agent().pid, 'SIGKILL');
  await world.agent().exited;
  await session.say('nobody supervises');
  await world.startAgent();
  await world.plane.phase(ID, 'running');
  await session.say('after');
  expect((await ssh(target, 'exit 4')).code).toBe(4);
  expect(await container()).toBe(before);
  expect(world.holderPid(ID)).toBe(holder);
  session.child.kill();
});

test('SIGTERM of the supervisor leaves everything as it is', async () => {
  const before = await container();
  expect(await world.agent().stop('SIGTERM')).toEqual({ code: 0, signal: null });
  expect(await container()).toBe(before);
  await world.startAgent();
  await world.plane.phase(ID, 'running');
  expect((await ssh(target, 'true')).code).toBe(0);
});

test('if the driver fails when the supervisor starts, rentals stay reachable, no GPU is offered, and the reason is reported', async () => {
  const before = await container();
  await world.agent().stop('SIGTERM');
  await world.startAgent({ FAKE_GPU_COUNT: '0' });
  await world.plane.phase(ID, 'running');
  expect(world.plane.hellos.at(-1)?.inventory).toMatchObject({
    gpus: [],
    gpu_error: expect.stringContaining('No devices were found'),
  });
  expect((await ssh(target, 'true')).code).toBe(0);
  expect(await container()).toBe(before);
  await world.agent().stop('SIGTERM');
  await world.startAgent();
  await world.plane.phase(ID, 'running');
  expect(world.plane.hellos.at(-1)?.inventory.gpus).toHaveLength(4);
});

test('after kill -9 of the holder, a new one serves the next connection with the same host key', async () => {
  const before = (await world.plane.phase(ID, 'running')).host_key;
  const container1 = await container();
  const holder = world.holderPid(ID);
  process.kill(holder, 'SIGKILL');
  await eventually('new holder', 15_000, async () => (await ssh(target, 'true')).code === 0 || undefined);
  expect(world.holderPid(ID)).not.toBe(holder);
  expect((await world.plane.phase(ID, 'running')).host_key).toBe(before);
  expect(await container()).toBe(container1);
});

test('after a restart of the engine, the container is adopted and not started again', async () => {
  const before = await container();
  const session = converse();
  await session.say('before');
  // Docker 20.10 never starts again if it ends while it makes or removes a network. The container, its network and the spare one are there.
  await expect.poll(() => engineContents(world.engine.docker)).toHaveLength(3);
  await world.engine.restart();
  await session.say('after');
  await eventually('adoption', 15_000, async () => {
    const text = world.agent().output();
    return text.includes('does not answer') || (await container()) === before ? true : undefined;
  });
  await world.plane.phase(ID, 'running');
  expect(await container()).toBe(before);
  session.child.kill();
});

test('an older list and an empty one stop nothing', async () => {
  const before = await container();
  world.plane.send({ type: 'desired', epoch: 0, revision: 99, complete: true, now_ms: 0, workloads: [] });
  world.plane.send({ type: 'desired', epoch: 1, revision: 1, complete: true, now_ms: 0, workloads: [] });
  world.plane.desire([]);
  await eventually('unknown workload', 15_000, () => {
    const observed = world.plane.observed();
    return Promise.resolve(observed?.held?.revision === 2 ? true : undefined);
  });
  expect((await ssh(target, 'true')).code).toBe(0);
  expect(await container()).toBe(before);
  world.plane.desire([world.workload(ID, image.pinnedRef)]);
  await world.plane.phase(ID, 'running');
});

test('a partial list closes the link with a reason and stops nothing', async () => {
  const before = await container();
  const hellos = world.plane.hellos.length;
  world.plane.sendText(JSON.stringify({ type: 'desired', epoch: 1, revision: 500, workloads: [] }));
  await eventually('new link', 15_000, () => Promise.resolve(world.plane.hellos.length > hellos || undefined));
  expect(world.plane.ended.at(-1)).toMatchObject({ code: 4400 });
  expect(world.plane.ended.at(-1)?.reason).toContain('complete');
  expect(await container()).toBe(before);
});

test('a container whose tenant kills the guest is started again', async () => {
  const before = await container();
  await ssh(target, 'kill -KILL $PPID');
  await eventually('restart', 20_000, async () => (await ssh(target, 'true')).code === 0 || undefined);
  expect((await container()).split(' ')[0]).toBe(before.split(' ')[0]);
  expect(await container()).not.toBe(before);
  await world.plane.phase(ID, 'running');
});

test('a workload that cannot run reports the reason', async () => {
  const main = world.workload(ID, image.pinnedRef);
  const empty = await busyboxImage(world.registry, { name: 'empty', config: { Cmd: [] } });
  world.plane.desire([
    main,
    world.workload('wl_no_command', empty.pinnedRef),
    world.workload('wl_no_image', `${world.registry.host}/nothing@sha256:${'0'.repeat(64)}`),
    world.workload('wl_no_gpu', image.pinnedRef, { gpu_uuids: ['GPU-that-is-not-there'] }),
  ]);
  expect((await world.plane.phase('wl_no_command', 'failed')).failure_code).toBe('no_command');
  expect((await world.plane.phase('wl_no_image', 'failed')).failure_code).toBe('image_pull_failed');
  expect((await world.plane.phase('wl_no_gpu', 'failed')).failure_code).toBe('gpu_unavailable');
});

test('a workload whose image is wrong in itself says so at its first try', async () => {
  const nobody = await busyboxImage(world.registry, { name: 'nobody', config: { User: 'nobody-here' } });
  const misplaced = await busyboxImage(world.registry, { name: 'misplaced', config: { WorkingDir: '/bin/busybox' } });
  const wrong = { wl_no_user: nobody.pinnedRef, wl_no_place: misplaced.pinnedRef };
  const workloads = Object.entries(wrong).map(([id, ref]) => world.workload(id, ref));
  world.plane.desire([world.workload(ID, image.pinnedRef), ...workloads]);
  expect(await world.plane.phase('wl_no_user', 'failed')).toMatchObject({
    failure_code: 'image_unusable',
    detail: expect.stringMatching(/^the image cannot be run: .*nobody-here/) as string,
  });
  const { failure_code: code, detail } = await world.plane.phase('wl_no_place', 'failed');
  expect([code, detail]).toEqual(['image_unusable', expect.stringContaining(' /bin/busybox is not a directory')]);
  const removed = workloads.map((workload) => ({ ...workload, desired: 'removed' as const }));
  world.plane.desire([world.workload(ID, image.pinnedRef), ...removed]);
  for (const { workload_id: id } of removed) await world.plane.phase(id, 'removed');
});

test('a vanished container is reported, not replaced', async () => {
  world.plane.desire([world.workload(ID, image.pinnedRef), world.workload('wl_vanish', image.pinnedRef)]);
  await world.plane.phase('wl_vanish', 'running');
  await world.engine.docker.getContainer('svc-wl_vanish').remove({ force: true });
  await world.plane.phase('wl_vanish', 'missing');
  // Its network goes too: what is left is the other container and its network.
  await expect.poll(contents).toHaveLength(2);
});

test('a removed workload is stopped and cut off at once, gone after the quarantine, and reported again by a new supervisor', async () => {
  const folder = join(world.stateDir, 'workloads', ID);
  const removed = [ID, 'wl_vanish', 'wl_no_command', 'wl_no_image', 'wl_no_gpu'].map((id) =>
    world.workload(id, image.pinnedRef, { desired: 'removed' }),
  );
  world.plane.desire(removed);
  await world.plane.phase(ID, 'stopped');
  expect(await contents()).toEqual([expect.stringContaining('exited')]);
  expect(existsSync(folder)).toBe(true);
  for (const workload of removed) await world.plane.phase(workload.workload_id, 'removed');
  expect(await contents()).toEqual([]);
  expect(existsSync(folder)).toBe(false);
  expect(() => world.holderPid(ID)).toThrow('no holder');
  await world.agent().stop('SIGKILL');
  await world.startAgent();
  await world.plane.phase(ID, 'removed');
});

test('the only container of a host is missed within seconds after somebody has removed it', async () => {
  // Only the network in advance is left of the tests before: a further one would be taken for it below.
  await expect.poll(() => engineContents(world.engine.docker)).toHaveLength(1);
  const alone = world.workload('wl_alone', image.pinnedRef);
  world.plane.desire([alone]);
  await world.plane.phase('wl_alone', 'running');
  // The container, its network and the network in advance.
  await expect.poll(() => engineContents(world.engine.docker)).toHaveLength(3);
  await world.engine.docker.getContainer('svc-wl_alone').remove({ force: true });
  await world.plane.phase('wl_alone', 'missing', 15_000);
  world.plane.desire([{ ...alone, desired: 'removed' }]);
  await world.plane.phase('wl_alone', 'removed');
});

test('a host is cleared of everything; running rentals end only with --force, and the next agent takes new ones', async () => {
  world.plane.desire([world.workload('wl_left', image.pinnedRef)]);
  await world.plane.phase('wl_left', 'running');
  // What the killed supervisor left is gone by now.
  await expect.poll(contents).toHaveLength(2);
  await world.agent().stop('SIGTERM');
  const refused = await world.svcAgent('clear');
  expect({ code: refused.code, stderr: refused.stderr.toString() }).toEqual({
    code: 1,
    stderr: expect.stringContaining('1 rentals run here'),
  });
  expect(await contents()).toHaveLength(2);
  expect(await world.svcAgent('clear', '--force')).toMatchObject({ code: 0 });
  expect(await engineContents(world.engine.docker)).toEqual([]);
  expect(() => world.holderPid('wl_left')).toThrow('no holder');
  await world.startAgent();
  await world.plane.phase('wl_left', 'removed', 15_000);
  world.plane.desire([world.workload('wl_next', image.pinnedRef)]);
  await world.plane.phase('wl_next', 'running');
});
