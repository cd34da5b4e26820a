// The GPUs that the demo rents out: the machine's own if driver and container hook are installed, otherwise eight simulated ones.
import { spawnSync } from 'node:child_process';
import { accessSync, constants, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { GpuOptions } from '../kit/agent-host.ts';
import type { ImageOptions } from '../kit/images.ts';

export interface DemoGpus extends GpuOptions {
  /** The text of the demo's `Service` line. */
  description: string;
  /** What the demo's image needs so that nvidia-smi runs in it. */
  image: Pick<ImageOptions, 'files' | 'config'>;
}

const SIMULATED: DemoGpus = {
  description: '8 simulated GPUs',
  env: { FAKE_GPU_COUNT: '8', FAKE_GPU_NAME: 'NVIDIA H100 80GB HBM3' },
  image: {},
};
/** The NVIDIA container toolkit's program that dockerd looks for by this name. */
const HOOK = 'nvidia-container-runtime-hook';

/** `path` is a PATH. Both programs must be on it, and nvidia-smi must list a GPU. */
export function findGpus(path: string): DemoGpus {
  const nvidiaSmi = find('nvidia-smi', path);
  if (nvidiaSmi === undefined || find(HOOK, path) === undefined) return SIMULATED;
  const { status, stdout } = spawnSync(nvidiaSmi, ['-L'], { encoding: 'utf8' });
  const names = stdout?.split('\n').filter((line) => line.startsWith('GPU ')) ?? [];
  if (status !== 0 || names.length === 0) return SIMULATED;
  return {
    description: `${names.length} GPU${names.length === 1 ? '' : 's'} of this machine`,
    env: {},
    nvidiaSmi,
    image: {
      files: librariesOf(nvidiaSmi),
      // The hook brings the driver's own libraries and nvidia-smi into a container that asks for them.
      config: { Env: ['PATH=/usr/sbin:/usr/bin:/sbin:/bin', 'NVIDIA_DRIVER_CAPABILITIES=compute,utility'] },
    },
  };
}

/** The C library that a program is linked against, by its path without the first slash: a busybox image has none. */
export function librariesOf(program: string): Record<string, Buffer> {
  const { stdout } = spawnSync('ldd', [program], { encoding: 'utf8' });
  const files: Record<string, Buffer> = {};
  for (const [, file = ''] of (stdout ?? '').matchAll(/\s(\/\S+) \(0x/g)) files[file.slice(1)] = readFileSync(file);
  return files;
}

function find(program: string, path: string): string | undefined {
  return path
    .split(':')
    .map((dir) => join(dir, program))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}
