// A GPU machine with the real agent as a child process: simulated GPUs, a Docker Engine, a state folder of its own.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join, resolve } from 'node:path';
import { capture, type Captured } from './capture.ts';
import { openDaemon, type Daemon } from './daemon.ts';
import { GPU_DIR } from './engine.ts';
import { eventually } from './processes.ts';

export interface AgentHost {
  /** The supervisor, `svc-agent run`. */
  daemon: Daemon;
  stateDir: string;
  configPath: string;
  /** Runs `svc-agent enroll`. */
  enroll(url: string, token: string): Promise<Captured>;
  /** Process ids of the holders, which the supervisor leaves alone when it leaves; with a workload, of its own alone. */
  holders(workloadId?: string): number[];
  /** Ends supervisor and holders. */
  stop(): Promise<void>;
}

export interface AgentHostOptions {
  /** New; at most 45 characters, because unix sockets live below it. */
  dir: string;
  dockerSocket: string;
  gpus: GpuOptions;
  /** Runs the agent in the engine's network, where its fence belongs; left out, it has none. */
  inside?: (argv: readonly string[]) => readonly string[];
  quarantineMinutes?: number;
  /** PEM file of the control plane's authority. */
  tlsCaFile?: string | undefined;
  /** The beginning of its command line; by default the one of this checkout. */
  program?: readonly string[] | undefined;
}

export interface GpuOptions {
  /** FAKE_GPU_COUNT and its like (see gpu/nvidia-smi), as the engine has them; two machines need two seeds. */
  env: Record<string, string>;
  /** Program that answers nvidia-smi's query flags: by default the scripted one. */
  nvidiaSmi?: string;
}

const LAUNCHER = resolve(import.meta.dirname, '../../agent/svc-agent.js');

export function openAgentHost(options: AgentHostOptions): AgentHost {
  const { dir, gpus, inside = (argv) => argv, program = [process.execPath, LAUNCHER] } = options;
  mkdirSync(dir, { mode: 0o700 });
  const stateDir = join(dir, 's');
  const configPath = join(dir, 'agent.yaml');
  const config = {
    state_dir: stateDir,
    docker_socket: options.dockerSocket,
    nvidia_smi: gpus.nvidiaSmi ?? join(GPU_DIR, 'nvidia-smi'),
    network_fence: options.inside === undefined ? 'none' : 'nftables',
    quarantine_minutes: options.quarantineMinutes ?? 0,
    tls_ca_file: options.tlsCaFile,
  };
  // JSON is YAML.
  writeFileSync(configPath, JSON.stringify(config, undefined, 2));
  const daemon = openDaemon({
    name: 'the agent',
    argv: inside([...program, 'run', '--config', configPath]),
    env: gpus.env,
    logPath: join(dir, 'agent.log'),
    ready: () => isLinked(join(stateDir, 'agent.sock')),
  });
  const holders = (workloadId = ''): number[] =>
    processesWith(['holder', '--dir', `${stateDir}/workloads/${workloadId}`]);
  return {
    daemon,
    stateDir,
    configPath,
    holders,
    enroll: (url, token) =>
      capture([...program, 'enroll', '--url', url, '--token', token, '--config', configPath], {
        env: gpus.env,
      }),
    stop: async () => {
      await daemon.stop();
      for (const pid of holders()) signal(pid, 'SIGTERM');
      await eventually('end of the holders', 10_000, async () => (holders().length === 0 ? true : undefined));
    },
  };
}

/** GET /healthz on the agent's socket says 200 while its link is up. */
function isLinked(socketPath: string): Promise<boolean> {
  return new Promise((resolvePromise) => {
    const asked = request({ socketPath, path: '/healthz', agent: false }, (response) => {
      response.resume();
      resolvePromise(response.statusCode === 200);
    });
    asked.on('error', () => resolvePromise(false)).end();
  });
}

/** Processes with these arguments one after the other, the last one as a beginning. */
function processesWith(words: readonly string[]): number[] {
  const line = `\0${words.join('\0')}`;
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && readOrEmpty(`/proc/${name}/cmdline`).includes(line))
    .map(Number);
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It ended by itself.
  }
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
