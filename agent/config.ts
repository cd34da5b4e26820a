// The agent's configuration: one YAML file. Every key is optional; an unknown key is refused with its line.
import { existsSync, readFileSync } from 'node:fs';
import { z } from 'zod';
import { GPUS_PER_MACHINE_MAX, QUARANTINE_MS } from '../shared/limits.ts';
import { parseYamlConfig, readNamed } from '../shared/yaml-config.ts';

/** A unix socket's path has at most 107 characters. The longest of ours takes 52 below the state directory. */
const STATE_DIR_CHARS_MAX = 55;

const AgentConfig = z.strictObject({
  /** Identity, desired state and the workloads' folders live here. */
  state_dir: z
    .string()
    .startsWith('/', 'must be an absolute path')
    .max(STATE_DIR_CHARS_MAX, `must be at most ${STATE_DIR_CHARS_MAX} characters (unix sockets live below it)`)
    .default('/var/lib/svc-agent'),
  docker_socket: z.string().startsWith('/', 'must be an absolute path').default('/var/run/docker.sock'),
  /** Program that answers nvidia-smi's query flags. */
  nvidia_smi: z.string().min(1).default('nvidia-smi'),
  /** UUIDs of GPUs that the supplier keeps. They are never offered. Each keeps its share of the host's memory and cores. */
  excluded_gpus: z.array(z.string().min(1).max(128)).max(GPUS_PER_MACHINE_MAX).default([]),
  /** `none`: the supplier protects the host and its network from containers by other means. */
  network_fence: z.enum(['nftables', 'none']).default('nftables'),
  log_level: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'silent']).default('info'),
  /** PEM file with the authority that signed the control plane's certificate. Needed only if that authority is a private one. */
  tls_ca_file: z.string().min(1).optional(),
  /** Above `high` percent of the engine's disk, unused images are removed until `low`. */
  image_disk_percent: z
    .strictObject({ high: z.number().min(1).max(99), low: z.number().min(0).max(99) })
    .refine(({ high, low }) => low <= high, 'low must not be above high')
    .default({ high: 80, low: 70 }),
  /** How long a stopped workload's disk is kept. */
  quarantine_minutes: z
    .number()
    .min(0)
    .max(7 * 24 * 60)
    .default(QUARANTINE_MS / 60_000),
});
export type AgentConfig = z.infer<typeof AgentConfig>;

/** A package puts the configuration here. */
const INSTALLED = '/etc/svc-agent/agent.yaml';

/** Reads the file, or the `installed` one. If there is neither, returns the defaults. Throws a message with file, line and reason. */
export async function readConfig(file: string | undefined, installed = INSTALLED): Promise<AgentConfig> {
  if (file !== undefined) return parseYamlConfig(readNamed('--config', file, readText), AgentConfig, file);
  if (!existsSync(installed)) return AgentConfig.parse({});
  return parseYamlConfig(readNamed('the default of --config', installed, readText), AgentConfig, installed);
}

/** The PEM text of `tls_ca_file`; undefined if it is not set, then Node's own authorities count. */
export async function readCa(config: AgentConfig): Promise<string | undefined> {
  return config.tls_ca_file === undefined ? undefined : readNamed('tls_ca_file', config.tls_ca_file, readText);
}

const readText = (path: string): string => readFileSync(path, 'utf8');
