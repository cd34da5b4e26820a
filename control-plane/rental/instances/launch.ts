// What an instance runs, as it is stored with the instance.
import { z } from 'zod';
import { type CreateInstance, Port } from '../../../shared/api/instance.ts';
import type { Runnable } from '../launch/runnable.ts';

/** What an instance runs. It never changes, so a boot rescue runs exactly the same on another host. */
export const Launch = z.strictObject({
  /** Pinned to the digest that was verified: `<image>@sha256:...`. */
  image: z.string(),
  /** True if the customer named the image. Other images are never shown. */
  own_image: z.boolean(),
  /** Id of the login to pull the image with; null for a public image. */
  registry_credential_id: z.string().nullable(),
  /** The command in place of the image's own. Null: the image's own is used. An empty array: there is none. */
  entrypoint: z.array(z.string()).nullable(),
  cmd: z.array(z.string()).nullable(),
  /** Variables may be secrets. They are opened only to be sent to the host. Null if there are none. */
  sealed_env: z.string().nullable(),
  ports: z.array(Port),
  /** The VRAM that each GPU must have; 0 for any. */
  min_vram_gb: z.int(),
  /** True if the instance may run only on machines that the operator trusts. */
  trusted_only: z.boolean().default(false),
  /** Ids of machines on which the same work has failed before. The instance is not placed there. */
  avoided_machine_ids: z.array(z.string()).default([]),
});
export type Launch = z.infer<typeof Launch>;

/** The members of a request and of its launch that the API shows. */
export const Shown = z.strictObject({
  /** The image that the customer has named; null for any other image. */
  image: z.string().nullable(),
  ports: Launch.shape.ports,
  auto_terminate_hours: z.number().nullable(),
  auto_terminate_on_exit: z.literal(true).optional(),
});
type Shown = z.infer<typeof Shown>;

/** What the instance got of the host where it was placed last. Null: the host has not reported it. */
export const Placed = z.strictObject({
  offering_id: z.string(),
  vram_gb: z.int(),
  cpu_cores: z.int().nullable(),
  ram_gb: z.int().nullable(),
  /** The time until which the supplier offers the host; left out if it has set none. */
  rentable_until_ms: z.int().optional(),
});
export type Placed = z.infer<typeof Placed>;

/** The machines on which a launch of the platform itself may run. */
export interface Whereabouts {
  trustedOnly: boolean;
  avoidedMachineIds: string[];
}

export const ANYWHERE: Whereabouts = { trustedOnly: false, avoidedMachineIds: [] };

interface LaunchMore extends Whereabouts {
  sealedEnv: string | null;
  minVramGb: number;
}

export function launchOf(runnable: Runnable, more: LaunchMore): Launch {
  return {
    image: runnable.image,
    own_image: runnable.ownImage,
    registry_credential_id: runnable.registryCredentialId,
    entrypoint: runnable.entrypoint,
    cmd: runnable.cmd,
    sealed_env: more.sealedEnv,
    ports: runnable.ports,
    min_vram_gb: more.minVramGb,
    trusted_only: more.trustedOnly,
    avoided_machine_ids: more.avoidedMachineIds,
  };
}

export function shownOf(
  request: Pick<CreateInstance, 'auto_terminate_hours' | 'auto_terminate_on_exit'>,
  launch: Launch,
): Shown {
  return {
    image: launch.own_image ? launch.image : null,
    ports: launch.ports,
    auto_terminate_hours: request.auto_terminate_hours ?? null,
    ...(request.auto_terminate_on_exit === true ? { auto_terminate_on_exit: true } : {}),
  };
}
