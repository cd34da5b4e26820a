// What a rental runs, worked out from the request before it is accepted: this part may ask the network, the transaction may not.
import { z } from 'zod';
import { type CreateInstance, Port } from '../../../shared/api/instance.ts';
import { failField } from '../../../shared/errors.ts';

/** Never changed afterwards: a boot rescue runs the same on another host. */
export const Launch = z.strictObject({
  /** Pinned to the digest that was verified: `<image>@sha256:...`. */
  image: z.string(),
  /** The login that the image is pulled with; null for a public one. */
  registry_credential_id: z.string().nullable(),
  /** `null` = as the image says; an empty array clears it. */
  entrypoint: z.array(z.string()).nullable(),
  cmd: z.array(z.string()).nullable(),
  env: z.record(z.string(), z.string()),
  ports: z.array(Port),
});
export type Launch = z.infer<typeof Launch>;

export interface LaunchDeps {
  /** The image pinned to its digest. @throws ServiceError where it cannot be pulled or has nothing to run */
  verifyImage(orgId: string, request: CreateInstance): Promise<string>;
}

/** Everything that is decided outside the transaction. @throws ServiceError for what specification 4.3 refuses */
export async function prepareLaunch(orgId: string, request: CreateInstance, deps: LaunchDeps): Promise<Launch> {
  if (request.tier === 'spot') failField('tier', 'spot cannot be combined with image; use on_demand');
  return {
    image: await deps.verifyImage(orgId, request),
    registry_credential_id: request.registry_credential_id ?? null,
    entrypoint: request.entrypoint ?? null,
    cmd: request.cmd ?? null,
    env: request.env ?? {},
    ports: request.ports ?? [],
  };
}
