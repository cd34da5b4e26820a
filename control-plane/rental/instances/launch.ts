// What a rental runs, worked out from the request before it is accepted: this part may ask the network, the transaction may not.
import { z } from 'zod';
import { type CreateInstance, Port } from '../../../shared/api/instance.ts';

/** Never changed afterwards: a boot rescue runs the same on another host. */
export const Launch = z.strictObject({
  image: z.string(),
  /** `null` = as the image says; an empty array clears it. */
  entrypoint: z.array(z.string()).nullable(),
  cmd: z.array(z.string()).nullable(),
  env: z.record(z.string(), z.string()),
  ports: z.array(Port),
});
export type Launch = z.infer<typeof Launch>;

/** Everything that is decided outside the transaction. @throws ServiceError for what specification 4.3 refuses */
export async function prepareLaunch(request: CreateInstance): Promise<Launch> {
  return {
    image: request.image,
    entrypoint: request.entrypoint ?? null,
    cmd: request.cmd ?? null,
    env: request.env ?? {},
    ports: request.ports ?? [],
  };
}
