// How each registry is reached: by the scheme it speaks, and with no more trust than the operator has given it.
import type { Clock } from '../../../shared/clock.ts';
import { openOutbound, type Outbound } from '../../base/outbound/outbound.ts';
import { hostOf } from './reference.ts';

/** A registry at an address that is not public, which the operator has named. `host` with or without its port. */
export interface PrivateRegistry {
  host: string;
  plainHttp: boolean;
}

/** How a registry is reached. */
export interface RegistryClient {
  outbound: Outbound;
  /** Ends with `/v2/`. */
  baseUrl: string;
}

export interface RegistryClients {
  to(registry: string): RegistryClient;
  close(): Promise<void>;
}

/**
 * Only a registry that the operator has named leads on to others of them: a stranger's redirect or token server does not.
 * `resolve` and `ca` take the place of DNS and of the system's certificates, for tests.
 */
export function openRegistryClients(
  privateRegistries: readonly PrivateRegistry[],
  deps: { clock: Clock; resolve?: (hostname: string) => Promise<string[]>; ca?: string },
): RegistryClients {
  const policy = { ports: 'any' as const, privateNetworks: [] };
  const toStrangers = openOutbound({ ...policy, namedHosts: [] }, deps);
  const toNamed = openOutbound({ ...policy, namedHosts: privateRegistries }, deps);
  return {
    to: (registry) => {
      const named = privateRegistries.find(({ host }) => host === registry || host === registry.replace(/:\d+$/, ''));
      const scheme = named?.plainHttp === true ? 'http' : 'https';
      return { outbound: named === undefined ? toStrangers : toNamed, baseUrl: `${scheme}://${hostOf(registry)}/v2/` };
    },
    close: async () => {
      await Promise.all([toStrangers.close(), toNamed.close()]);
    },
  };
}
