// The secrets of webhook endpoints: made here, sealed in the database, opened for each attempt.
import type { Ids } from '../../../shared/ids.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import type { EndpointRow } from './endpoint-store.ts';

const SECRET_BYTES = 32;

export interface Secrets {
  /** Makes a secret of 64 hexadecimal characters. */
  make(): string;
  seal(endpointId: string, secret: string): string;
  /** The secrets that sign now, newest first. There are two for a day after a rotation. */
  inUse(endpoint: EndpointRow, nowMs: number): string[];
}

export function openSecrets({ ids, sealing }: { ids: Ids; sealing: Sealing }): Secrets {
  const place = (endpointId: string): string => `webhook-secret/${endpointId}`;
  return {
    make: () => Buffer.from(ids.secret(SECRET_BYTES), 'base64url').toString('hex'),
    seal: (endpointId, secret) => sealing.seal(place(endpointId), secret),
    inUse: ({ id, secret_sealed, previous_secret_sealed, previous_until_ms }, nowMs) => {
      const previous = (previous_until_ms ?? 0) > nowMs ? previous_secret_sealed : null;
      const sealed = previous === null ? [secret_sealed] : [secret_sealed, previous];
      return sealed.map((text) => sealing.open(place(id), text));
    },
  };
}
