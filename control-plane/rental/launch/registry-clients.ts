// The HTTP client for each registry: its scheme, and which addresses it may lead to.
import type { Clock } from '../../../shared/clock.ts';
import { openOutbound, type Outbound } from '../../base/outbound/outbound.ts';
import { hostOf } from './reference.ts';

/** A registry at a private address that the operator has named. `host` may have a port. */
export interface PrivateRegistry {
  host: string;
  plainHttp: boolean;
}

/** The client and the base URL for one registry. */
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
 * A registry that the operator has named may redirect to other named ones. Redirects and token servers of other registries may not lead there.
 * `resolve` and `ca` replace DNS and the system's certificates in tests.
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
