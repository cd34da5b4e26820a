// An agent on a private engine with simulated GPUs, enrolled at a fake control plane: the base of the agent's Docker tests.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DesiredWorkload } from '../../shared/protocol/workload.ts';
import { capture, type Captured } from '../kit/capture.ts';
import { GPU_DIR, startEngine, type Engine } from '../kit/engine.ts';
import { startProgram, runProgram, type Program } from '../kit/processes.ts';
import { startRegistry, type Registry } from '../kit/registry.ts';
import { makeIdentity, type SshIdentity } from '../kit/ssh-client.ts';
import { underUnit } from '../kit/unit.ts';
import { desiredWorkload } from './desired-workload.ts';
import { startFakeControlPlane, type FakeControlPlane } from './fake-control-plane.ts';

const LAUNCHER = join(import.meta.dirname, '../../agent/svc-agent.js');

export interface AgentWorld {
  dir: string;
  stateDir: string;
  engine: Engine;
  registry: Registry;
  plane: FakeControlPlane;
  agent(): Program;
  /** Starts (again) the supervisor; `env` is for the scripted nvidia-smi. */
  startAgent(env?: Record<string, string>): Promise<Program>;
  /** Runs a command of `svc-agent` beside it. */
  svcAgent(...words: string[]): Promise<Captured>;
  /** A new key pair of a customer. */
  identity(name: string): Promise<SshIdentity>;
  workload(id: string, image: string, more?: Partial<DesiredWorkload>): DesiredWorkload;
  holderPid(workloadId: string): number;
  stop(): Promise<void>;
}

export interface AgentWorldOptions {
  /** How long a stopped workload keeps its disk. */
  quarantineMinutes: number;
  /** The supervisor runs under systemd by its unit, with the unit's filters and limits. */
  asUnit?: boolean;
  /** Variables of the engine's device hook, beside the number of its GPUs. */
  engineEnv?: Record<string, string>;
  /** Folder of the engine's device hook. */
  hookDir?: string;
}

export async function startAgentWorld(options: AgentWorldOptions): Promise<AgentWorld> {
  // Short: unix sockets live below it.
  const dir = mkdtempSync(join(tmpdir(), 'aw-'));
  const stateDir = join(dir, 's');
  mkdirSync(join(dir, 'engine'));
  const [registry, engine, plane] = await Promise.all([
    startRegistry(),
    startEngine({
      dir: join(dir, 'engine'),
      env: { FAKE_GPU_COUNT: '4', ...options.engineEnv },
      ...(options.hookDir === undefined ? {} : { hookDir: options.hookDir }),
    }),
    startFakeControlPlane(),
  ]);
  await engine.letThrough(registry.port);
  await engine.letThrough(Number(new URL(plane.url).port));
  const configFile = writeConfig(dir, stateDir, engine.socketPath, options.quarantineMinutes);
  const env = { FAKE_GPU_COUNT: '4' };
  const command = process.execPath;
  let agent: Program | undefined;
  const stop = async (): Promise<void> => {
    await agent?.stop('SIGTERM');
    for (const pid of holderPids(stateDir)) process.kill(pid, 'SIGKILL');
    await plane.stop();
    await engine.stop();
    await registry.stop();
    rmSync(dir, { recursive: true, force: true });
  };
  const startAgent = async (more: Record<string, string> = {}): Promise<Program> => {
    // The engine's bridges are in this network namespace: the fence is put up there.
    const argv = [command, LAUNCHER, 'run', '--config', configFile];
    const [program, ...args] = engine.inside(
      options.asUnit === true ? underUnit('svc-agent.service', dir, argv) : argv,
    );
    agent = startProgram({ command: program, args, env: { ...env, ...more } });
    await agent.waitForOutput(/the agent runs/, 30_000);
    return agent;
  };
  try {
    const args = [LAUNCHER, 'enroll', '--config', configFile, '--url', plane.url, '--token', plane.token];
    await runProgram({ command, args, env });
    await startAgent();
  } catch (error) {
    // Whoever cannot get a world has nothing to stop.
    await stop();
    throw error;
  }

  const running = (): Program => {
    if (agent === undefined) throw new Error('no agent runs');
    return agent;
  };
  return {
    dir,
    stateDir,
    engine,
    registry,
    plane,
    agent: running,
    startAgent,
    svcAgent: (...words) => capture([command, LAUNCHER, ...words, '--config', configFile]),
    identity: (name) => makeIdentity(dir, name),
    workload: desiredWorkload,
    holderPid: (workloadId) => findHolder(join(stateDir, 'workloads', workloadId)),
    stop,
  };
}

function writeConfig(dir: string, stateDir: string, dockerSocket: string, quarantineMinutes: number): string {
  const file = join(dir, 'agent.yaml');
  const nvidiaSmi = join(GPU_DIR, 'nvidia-smi');
  writeFileSync(
    file,
    `state_dir: ${stateDir}
docker_socket: ${dockerSocket}
nvidia_smi: ${nvidiaSmi}
quarantine_minutes: ${quarantineMinutes}
`,
  );
  return file;
}

function findHolder(folder: string): number {
  const pid = holderPids(folder)[0];
  if (pid === undefined) throw new Error(`no holder for ${folder}`);
  return pid;
}

/** Holders whose workload folder begins with `prefix`; end it with the folder's full name for one. */
function holderPids(prefix: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      const argv = commandLine(pid);
      return argv.includes('holder') && argv.some((arg) => arg.startsWith(prefix));
    });
}

function commandLine(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  } catch {
    return [];
  }
}
