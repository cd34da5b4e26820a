// The networks that this host is in.
import { networkInterfaces } from 'node:os';

/** As `address/length`, with the host's own address; none of loopback. */
export function readOwnNetworks(interfaces = networkInterfaces()): string[] {
  return Object.values(interfaces).flatMap((addresses) =>
    (addresses ?? []).flatMap(({ internal, cidr }) => (internal || cidr === null ? [] : [cidr])),
  );
}
