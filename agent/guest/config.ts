// Reads the guest's instructions from the run folder on the command line, and from the environment that the engine has set.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** Content of `launch.json`, which the agent writes before it creates the container (runtime/shape.ts). */
interface LaunchFile {
  argv: string[];
  env: Record<string, string>;
  stop_signal: string;
  gpu_uuids: string[];
}

export interface GuestConfig {
  guestSocket: string;
  /** Path of node-pty's native module, which lies beside this program. Terminals need it. */
  ptyModule: string;
  argv: string[];
  /** Environment of the main process and every session. The request's variables override the image's, and the engine's override both. */
  env: Record<string, string>;
  stopSignal: string;
  /** The GPUs that the container was given. */
  gpuUuids: string[];
}

const PATH_DEFAULT = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Reads `<run>/launch.json`; `argv` is this process's own. */
export function readGuestConfig(argv: readonly string[]): GuestConfig {
  const [, program = '', run = ''] = argv;
  const launch: LaunchFile = JSON.parse(readFileSync(join(run, 'launch.json'), 'utf8'));
  const own = process.env;
  const fromEngine: Record<string, string> = {};
  for (const name of ['NVIDIA_VISIBLE_DEVICES', 'HOSTNAME']) {
    const value = own[name];
    if (value !== undefined) fromEngine[name] = value;
  }
  return {
    guestSocket: join(run, 'guest.sock'),
    ptyModule: join(dirname(program), 'pty.node'),
    argv: launch.argv,
    env: { PATH: PATH_DEFAULT, ...launch.env, ...fromEngine },
    stopSignal: launch.stop_signal,
    gpuUuids: launch.gpu_uuids,
  };
}
