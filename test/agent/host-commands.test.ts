// The agent's command line for the owner of a host: check, clear, and a token from the standard input.
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { readConfig } from '../../agent/config.ts';
import { type Cleared, clearHost, gpusInWords, surveyHost } from '../../agent/host-commands.ts';
import { type AgentStatus, openStatusSocket } from '../../agent/host/status-socket.ts';
import { loadIdentity, storeIdentity } from '../../agent/link/identity.ts';
import { assertRentable } from '../../agent/inventory.ts';
import { newJobRecord } from '../../agent/runtime/records.ts';
import { messageOf } from '../../shared/errors.ts';
import type { LoopStatus } from '../../shared/loop.ts';
import type { Inventory } from '../../shared/protocol/inventory.ts';
import { capture, type Captured } from '../kit/capture.ts';
import { GPU_DIR } from '../kit/engine.ts';
import { eventually } from '../kit/processes.ts';
import { virtualClock } from '../kit/virtual-clock.ts';
import { desiredWorkload } from './desired-workload.ts';
import { openOneGpuHost } from './runtime/one-gpu-host.ts';
import { openScriptedEngine, type ScriptedEngine } from './runtime/scripted-engine.ts';
import { newScript, openSlowEngine } from './runtime/slow-engine.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const dir = mkdtempSync(join(tmpdir(), 'host-'));
afterAll(() => rmSync(dir, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());
const configFile = join(dir, 'agent.yaml');
writeFileSync(configFile, JSON.stringify({ state_dir: dir, docker_socket: join(dir, 'docker.sock') }));
const config = await readConfig(configFile);

const agent = (argv: string[], input?: string): Promise<Captured> =>
  capture([process.execPath, join(ROOT, 'agent/svc-agent.js'), ...argv], input === undefined ? {} : { input });

test.each(['agent/svc-agent.js', 'control-plane/svc-control-plane.js'])('%s prints its version', async (program) => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  const { code, stdout } = await capture([process.execPath, join(ROOT, program), '--version']);
  expect({ code, said: stdout.toString() }).toEqual({ code: 0, said: `${version}\n` });
});

test('a token is read from the standard input, and an empty one is refused before any request', async () => {
  const { code, stderr } = await agent(['enroll', '--url', 'https://x', '--token', '-', '--config', configFile], '\n');
  expect({ code, stderr }).toEqual({
    code: 1,
    stderr: 'svc-agent: --token - reads the token from the standard input, which is empty\n',
  });
});

test('a host is not cleared while its agent runs; one that never enrolled has nothing to clear', async () => {
  expect(await clearHost(config, { force: false })).toEqual({ ended: 0, hasEngine: true });
  const identity = await loadIdentity(dir);
  await storeIdentity(dir, { ...identity, enrolled: { url: 'https://x', machine_id: 'm', link_path: '/l' } });
  const socket = await openStatusSocket(dir, () => undefined);
  await expect(clearHost(config, { force: true })).rejects.toThrow('another agent runs already');
  await socket.close();
});

test.each(['there is no socket', 'nobody listens on the socket'])(
  'a host whose Docker Engine is gone (%s) is cleared, by force only while a holder lives',
  async (how) => {
    const stateDir = mkdtempSync(join(dir, 's-'));
    const identity = await loadIdentity(stateDir);
    await storeIdentity(stateDir, { ...identity, enrolled: { url: 'https://x', machine_id: 'm', link_path: '/l' } });
    const gone = {
      ...config,
      state_dir: stateDir,
      docker_socket: join(stateDir, 'd.sock'),
      network_fence: 'none' as const,
    };
    // Connecting to a file that nobody listens on is refused.
    if (how !== 'there is no socket') writeFileSync(gone.docker_socket, '');
    const folder = join(stateDir, 'workloads/w');
    mkdirSync(folder, { recursive: true });
    const holder = createServer((socket) =>
      socket.on('error', () => undefined).on('data', (order) => order.includes('"exit"') && holder.close()),
    );
    await once(holder.listen(join(folder, 'holder.sock')), 'listening');

    await expect(clearHost(gone, { force: false })).rejects.toThrow('1 rentals run here');
    expect(await clearHost(gone, { force: true })).toEqual({ ended: 1, hasEngine: false });
    if (holder.listening) await once(holder, 'close');
    expect(await clearHost(gone, { force: false })).toEqual({ ended: 0, hasEngine: false });
  },
);

interface Host {
  stateDir: string;
  engine: ScriptedEngine;
  clear(force: boolean): Promise<Cleared>;
  store(file: string, value: unknown): void;
}

/** An enrolled host with the workload `w`, whose agent is stopped. `state` is the container's; undefined: the engine lists none. */
async function stoppedHost(state: string | undefined): Promise<Host> {
  const stateDir = mkdtempSync(join(dir, 's-'));
  const identity = await loadIdentity(stateDir);
  await storeIdentity(stateDir, { ...identity, enrolled: { url: 'https://x', machine_id: 'm', link_path: '/l' } });
  const engine = await openScriptedEngine();
  onTestFinished(engine.close);
  const container = {
    Id: 'c',
    State: state,
    Labels: { 'svc.machine_id': 'm', 'svc.workload_id': 'w', 'svc.gpu_uuids': '' },
    HostConfig: { NetworkMode: 'n' },
    Mounts: [],
  };
  engine.answers.set('GET /containers/json', { body: state === undefined ? [] : [container] });
  const host = { ...config, state_dir: stateDir, docker_socket: engine.socketPath, network_fence: 'none' as const };
  return {
    stateDir,
    engine,
    clear: (force) => clearHost(host, { force }),
    store: (file, value) => {
      mkdirSync(join(stateDir, 'workloads/w'), { recursive: true });
      writeFileSync(join(stateDir, file), JSON.stringify(value));
    },
  };
}

const GPU_UUID = expect.stringMatching(/^GPU-/) as unknown;
const RECORD = {
  workload_id: 'w',
  container_id: 'c',
  image_digest: null,
  ever_running: true,
  failure: null,
  removing: false,
  stopped_ms: null,
  gone: false,
  changed_ms: 1,
};
const RECORD_FILE = 'workloads/w/record.json';
const desiredState = (desired: 'running' | 'removed'): unknown => ({
  epoch: 1,
  revision: 1,
  workloads: [desiredWorkload('w', 'i', { desired })],
  server_clock: { server_ms: 1, monotonic_ms: 1, boot_id: 'b' },
});
const removals = ({ engine }: Host): string[] => engine.lines().filter((line) => line.startsWith('DELETE /containers'));

test.each<[string, state: string | undefined, files: Record<string, unknown>]>([
  [
    'is stopped since a reboot of the host',
    'exited',
    { [RECORD_FILE]: RECORD, 'desired.json': desiredState('running') },
  ],
  ['is no longer in the list of the control plane', 'exited', { [RECORD_FILE]: RECORD }],
  ['has lost its record', 'exited', {}],
  ['has a damaged record', 'exited', { [RECORD_FILE]: 'nonsense' }],
  ['is not listed by the engine, whose disk may not be mounted', undefined, { [RECORD_FILE]: RECORD }],
])('a rental that %s is ended by force only', async (_what, state, files) => {
  const host = await stoppedHost(state);
  for (const [file, value] of Object.entries(files)) host.store(file, value);
  await expect(host.clear(false)).rejects.toThrow(
    '0 rentals run here, and 1 are stopped with their data until the agent starts them again: take the machine out of supply (DELETE /v1/community/machines/m) and wait for their end while the agent runs; or use --force, which ends them and deletes the data in their containers',
  );
  expect(removals(host)).toEqual([]);
  expect(await host.clear(true)).toEqual({ ended: 1, hasEngine: true });
  expect(removals(host)).toHaveLength(state === undefined ? 0 : 1);
});

test('a rental that runs is ended by force only', async () => {
  const host = await stoppedHost('running');
  host.store(RECORD_FILE, RECORD);
  await expect(host.clear(false)).rejects.toThrow('1 rentals run here: take the machine out of supply');
  expect(removals(host)).toEqual([]);
  expect(await host.clear(true)).toEqual({ ended: 1, hasEngine: true });
});

test.each<[string, files: Record<string, unknown>]>([
  ['is being removed', { [RECORD_FILE]: { ...RECORD, removing: true } }],
  ['has failed', { [RECORD_FILE]: { ...RECORD, failure: { code: 'start_failed', detail: 'x' } } }],
  ['is gone', { 'tombstones.json': [{ ...RECORD, gone: true }] }],
  ['is a finished job', { [RECORD_FILE]: { ...RECORD, job: { ...newJobRecord(1), exit_code: 0, finished: true } } }],
  ['the control plane has ended', { [RECORD_FILE]: RECORD, 'desired.json': desiredState('removed') }],
])('the container of a workload that %s is removed without force', async (_what, files) => {
  const host = await stoppedHost('exited');
  for (const [file, value] of Object.entries(files)) host.store(file, value);
  expect(await host.clear(false)).toEqual({ ended: 0, hasEngine: true });
  expect(removals(host)).toHaveLength(1);
});

test.each([
  ['container the engine has', 'running'],
  ['container the engine no longer lists', undefined],
])(
  'the agent of a host whose %s was cleared by force says at once that the rental is gone, and takes the next one',
  async (_what, state) => {
    const host = await stoppedHost(state);
    host.store(RECORD_FILE, RECORD);
    host.store('desired.json', desiredState('running'));
    await host.clear(true);
    const clock = virtualClock();
    const script = { ...newScript(), clock };
    const setting = { stateDir: host.stateDir, clock, engine: openSlowEngine(script), script };
    const started = await openOneGpuHost({ ...setting, quarantineMs: 0, guest: false });
    onTestFinished(() => started.runtime.stop());
    await clock.advance(100);
    expect(started.seen('w')?.phase).toBe('removed');
    await started.want(desiredWorkload('next', 'i'));
    await started.until('start', () => started.called().includes('start'));
  },
);

test('a host that is cleared without its engine keeps the record of a container, which may still be there', async () => {
  const host = await stoppedHost('running');
  host.store(RECORD_FILE, RECORD);
  rmSync(host.engine.socketPath);
  await host.clear(true);
  expect(JSON.parse(readFileSync(join(host.stateDir, RECORD_FILE), 'utf8'))).toEqual(RECORD);
});

test('a job whose result is not uploaded yet is ended by force only', async () => {
  const host = await stoppedHost('exited');
  host.store(RECORD_FILE, { ...RECORD, job: { ...newJobRecord(1), exit_code: 0 } });
  await expect(host.clear(false)).rejects.toThrow('1 are stopped with their data');
});

const withEngine = (engineVersion: string): Inventory =>
  ({
    gpus: [{}],
    gpu_error: '',
    gpu_faults: [],
    engine_version: engineVersion,
    fence_error: '',
  }) as unknown as Inventory;

test.each(['20.10.0', '20.10.24+dfsg1', '29.1.0', 'dev'])('Docker Engine %s is new enough', (engineVersion) => {
  expect(() => assertRentable(withEngine(engineVersion), config, undefined)).not.toThrow();
});

test.each(['19.03.15', '20.9.1'])('Docker Engine %s is too old', (engineVersion) => {
  expect(() => assertRentable(withEngine(engineVersion), config, undefined)).toThrow(
    `Docker Engine ${engineVersion} is too old: install 20.10 or newer`,
  );
});

test('everything that a host lacks is reported at once, also if nvidia-smi fails', () => {
  const inventory = {
    gpus: [],
    gpu_error: 'nvidia-smi failed: driver mismatch',
    gpu_faults: [],
    engine_version: '',
    fence_error: 'no nft',
  };
  const check = (): void => assertRentable(inventory as unknown as Inventory, config, undefined);
  for (const lack of ['driver mismatch', 'no Docker Engine answers', 'no nft']) expect(check).toThrow(lack);
});

test('a host whose every GPU is in MIG mode is refused with the command that ends it', async () => {
  const nvidiaSmi = join(GPU_DIR, 'nvidia-smi');
  vi.stubEnv('FAKE_GPU_COUNT', '1');
  const [uuid] = (await capture([nvidiaSmi, '--query-gpu=uuid', '--format=csv,noheader'])).stdout
    .toString()
    .split('\n');
  writeFileSync(join(dir, 'faults'), `${uuid},mig.mode.current,Enabled\n`);
  vi.stubEnv('FAKE_GPU_FAULTS', join(dir, 'faults'));
  await expect(surveyHost({ ...config, nvidia_smi: nvidiaSmi })).rejects.toThrow(
    `no GPU is fit to be rented: ${uuid} is unfit: MIG mode is on: nvidia-smi -i ${uuid} -mig 0`,
  );
});

test('a host is refused if its supplier keeps all its GPUs, or names one that it does not have', async () => {
  const nvidiaSmi = join(GPU_DIR, 'nvidia-smi');
  vi.stubEnv('FAKE_GPU_COUNT', '1');
  const listing = await capture([nvidiaSmi, '--query-gpu=uuid', '--format=csv,noheader']);
  const uuid = listing.stdout.toString().trim();
  const survey = (excluded: string[]): Promise<Inventory> =>
    surveyHost({ ...config, nvidia_smi: nvidiaSmi, excluded_gpus: excluded });
  await expect(survey([uuid])).rejects.toThrow(
    `no GPU is fit to be rented: ${uuid} is unfit: excluded_gpus of agent.yaml names it`,
  );
  await expect(survey(['GPU-9'])).rejects.toThrow(
    `excluded_gpus names GPU-9, which this host does not have: see ${nvidiaSmi} -L`,
  );
});

test('a host with one fit GPU can be rented out, and the words about it name the other one', () => {
  const inventory = {
    ...withEngine('29.1.0'),
    gpus: [
      { uuid: 'GPU-1', name: 'H100' },
      { uuid: 'GPU-2', name: 'H100' },
    ],
    gpu_faults: [{ uuid: 'GPU-2', severity: 'unfit', detail: 'MIG mode is on' }],
  } as unknown as Inventory;
  expect(() => assertRentable(inventory, config, undefined)).not.toThrow();
  expect(gpusInWords(inventory)).toBe('2 GPUs (H100), GPU-2 is unfit: MIG mode is on');
});

test.each([
  [
    'could not select device driver "nvidia" with capabilities: [[gpu]]',
    'this host cannot be rented out yet: Docker cannot give a GPU to a container: install the NVIDIA Container Toolkit, then systemctl restart docker (could not select device driver "nvidia" with capabilities: [[gpu]])',
  ],
  ['exec: "/none": no such file or directory', undefined],
])('an engine that refuses a container with GPUs because of %j makes a host unfit: %s', async (refusal, lack) => {
  const engine = await openScriptedEngine();
  onTestFinished(engine.close);
  engine.answers.set('POST /containers/c-new/start', { status: 500, body: { message: refusal } });
  vi.stubEnv('FAKE_GPU_COUNT', '2');
  const { socketPath } = engine;
  const nvidiaSmi = join(GPU_DIR, 'nvidia-smi');
  const host = { ...config, nvidia_smi: nvidiaSmi, docker_socket: socketPath, network_fence: 'none' as const };
  expect(await surveyHost(host).then(() => undefined, messageOf)).toBe(lack);
  const asked = engine.asked.find(({ line }) => line === 'POST /containers/create');
  expect(asked?.body).toMatchObject({
    HostConfig: { NetworkMode: 'none', DeviceRequests: [{ Driver: 'nvidia', DeviceIDs: [GPU_UUID, GPU_UUID] }] },
  });
});

test('check ends also if nvidia-smi does not', async () => {
  const [nvidiaSmi, pidFile] = [join(dir, 'endless-smi'), join(dir, 'endless-pid')];
  // No signal of ours reaches this process, as none reaches an nvidia-smi that hangs in the kernel. Once it is ended here, the next one fails.
  const program = `#!/bin/sh\n[ ! -e ${pidFile} ] || exit 1\nsetsid sleep 600 &\necho $! >${pidFile}\n`;
  writeFileSync(nvidiaSmi, program, { mode: 0o755 });
  const clock = virtualClock();
  const survey = surveyHost({ ...config, nvidia_smi: nvidiaSmi }, clock);
  survey.catch(() => undefined);
  await eventually('a deadline', 5_000, async () => (clock.waiting() > 0 ? true : undefined));
  await eventually('nvidia-smi', 5_000, async () => (existsSync(pidFile) ? true : undefined));
  clock.jump(60_000);
  await expect(survey).rejects.toThrow(
    `repair the NVIDIA driver (${nvidiaSmi} does not come to an end: reboot the host)`,
  );
  process.kill(Number(readFileSync(pidFile, 'utf8')), 'SIGKILL');
});

const ORDERS = '\u001b]52;c;bHM=\u0007\u009b2J\u001b[31m\u202e';
const OBEYED = /[^\P{Cc}\n]|\p{Bidi_Control}/u;

test('status shows the reasons of others without what a terminal obeys', async () => {
  const status: AgentStatus = {
    version: '1',
    machine_id: 'm-1',
    url: 'https://gpu.example.com',
    link: { connected: false, last_end: `refused${ORDERS}\nlink: up` },
    loops: [{ name: 'images', last_error: `no such image ${ORDERS}x` } as LoopStatus],
    gpus: 1,
    gpu_error: '',
    gpu_faults: [],
    engine_version: '29',
    containers_doubt: '',
    network_fence: 'none',
    fence_error: '',
    holders_lack: '',
    disk_error: '',
  };
  const socket = await openStatusSocket(dir, () => status);
  const { code, stdout } = await agent(['status', '--config', configFile]);
  await socket.close();
  expect({ code, isObeyed: OBEYED.test(stdout.toString()) }).toEqual({ code: 1, isObeyed: false });
  expect(stdout.toString()).toContain('\nlink: down, refused link: up\n');
  expect(stdout.toString()).toContain('\nloop images fails: no such image x\n');
});

test('an error is shown without what a terminal obeys', async () => {
  const smi = join(dir, 'hostile-smi');
  writeFileSync(smi, `#!/bin/sh\nprintf '%s\\nall is well' '${ORDERS}broken' >&2\nexit 1\n`, { mode: 0o755 });
  const file = join(dir, 'hostile.yaml');
  writeFileSync(file, JSON.stringify({ state_dir: dir, docker_socket: join(dir, 'd.sock'), nvidia_smi: smi }));
  const { code, stderr } = await agent(['check', '--config', file]);
  expect(code).toBe(1);
  expect(stderr).toMatch(/^svc-agent: .*broken/);
  expect(stderr).not.toMatch(OBEYED);
});
