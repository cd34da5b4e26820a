// Reads the networks of this host's interfaces.
import { networkInterfaces } from 'node:os';

/** Each as `address/length` with the host's own address; without loopback. */
export function readOwnNetworks(interfaces = networkInterfaces()): string[] {
  return Object.values(interfaces).flatMap((addresses) =>
    (addresses ?? []).flatMap(({ internal, cidr }) => (internal || cidr === null ? [] : [cidr])),
  );
}
