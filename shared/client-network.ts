// Who counts as one client if limits are per address, and who goes if there are too many.
import { isIPv6 } from 'node:net';

/** A home or a server gets a whole /64, so single IPv6 addresses cost nothing. An IPv4 address is itself, mapped or not. */
export function networkOf(ip: string): string {
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

/** The first caller of the network that has the most. The callers are in the order in which they came. */
export function firstOfLargestNetwork<T extends { network: string }>(callers: readonly T[]): T | undefined {
  let most: readonly T[] = [];
  for (const each of Map.groupBy(callers, ({ network }) => network).values())
    if (each.length > most.length) most = each;
  return most[0];
}
