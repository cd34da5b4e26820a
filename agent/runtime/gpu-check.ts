// Finds out whether the engine can give GPUs to a container, before the first customer does.
//
// Docker selects a driver for the GPUs of a container at its start. It has one if it was started with the container toolkit's hook in its PATH, or
// if it knows CDI devices; which of the two depends on its version. Therefore we ask it for a container with the GPUs:
//
//     no driver    could not select device driver "nvidia" with capabilities: [[gpu]]
//     a driver     the container starts, or fails later: its program does not exist, so nothing runs in any case
import { messageOf } from '../../shared/errors.ts';
import type { Engine } from './engine.ts';

const NO_DRIVER = 'could not select device driver';

/** What the supplier must do before containers get GPUs; undefined if they do, or if the engine does not say it. Takes about a second. */
export async function findGpuLack(
  engine: Pick<Engine, 'runBare'>,
  gpuUuids: readonly string[],
): Promise<string | undefined> {
  const container = { argv: ['/none'], mounts: [], disk_mib: null, network: false, gpu_uuids: gpuUuids };
  const refusal = await engine.runBare({ name: 'gpus', ...container }).then(() => '', messageOf);
  if (!refusal.includes(NO_DRIVER)) return undefined;
  return `Docker cannot give a GPU to a container (${refusal}): install the NVIDIA Container Toolkit, then systemctl restart docker`;
}
