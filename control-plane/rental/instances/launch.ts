// What a rental runs, as it is stored with the instance.
import { z } from 'zod';
import { Port } from '../../../shared/api/instance.ts';
import type { Runnable } from '../launch/runnable.ts';

/** Never changed afterwards: a boot rescue runs the same on another host. */
export const Launch = z.strictObject({
  /** Pinned to the digest that was verified: `<image>@sha256:...`. */
  image: z.string(),
  /** The customer named it: only then it is shown. */
  own_image: z.boolean(),
  /** The login that the image is pulled with; null for a public one. */
  registry_credential_id: z.string().nullable(),
  /** `null` = as the image says; an empty array clears it. */
  entrypoint: z.array(z.string()).nullable(),
  cmd: z.array(z.string()).nullable(),
  /** Variables may hold secrets; opened for the host alone. */
  sealed_env: z.string(),
  ports: z.array(Port),
  /** What each GPU must have at least; 0: anything does. */
  min_vram_gb: z.int(),
});
export type Launch = z.infer<typeof Launch>;

export function launchOf(runnable: Runnable, more: { sealedEnv: string; minVramGb: number }): Launch {
  return {
    image: runnable.image,
    own_image: runnable.ownImage,
    registry_credential_id: runnable.registryCredentialId,
    entrypoint: runnable.entrypoint,
    cmd: runnable.cmd,
    sealed_env: more.sealedEnv,
    ports: runnable.ports,
    min_vram_gb: more.minVramGb,
  };
}
