// Networks of addresses. Client addresses are grouped into networks for limits per client, and the client to drop is picked if there are too many.
// An address of a server tells whether it carries secrets over a network that others may read.
import { isIPv6 } from 'node:net';

/** The /64 of an IPv6 address, because every home or server owns a whole /64. An IPv4 address, mapped or not, stays itself. */
export function networkOf(ip: string): string {
  if (!ip.includes(':')) return ip;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(ip)?.[1];
  if (mapped !== undefined || !isIPv6(ip)) return mapped ?? ip;
  const [before = [], after] = ip.split('::').map((half) => half.split(':').filter((group) => group !== ''));
  const zeros = Array<string>(Math.max(0, 8 - before.length - (after?.length ?? 0))).fill('0');
  const groups = after === undefined ? before : [...before, ...zeros, ...after];
  return groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':');
}

const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/** The host to which requests at this address carry secrets in clear text over a network; undefined if they do not. */
export function clearTextHost({ protocol, host, hostname }: URL): string | undefined {
  return protocol === 'http:' && !LOOPBACK.test(hostname) ? host : undefined;
}

/** The oldest caller of the network with the most callers. `callers` are in order of arrival. */
export function firstOfLargestNetwork<T extends { network: string }>(callers: readonly T[]): T | undefined {
  let most: readonly T[] = [];
  for (const each of Map.groupBy(callers, ({ network }) => network).values())
    if (each.length > most.length) most = each;
  return most[0];
}
