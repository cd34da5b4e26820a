// Names to addresses: by DNS for names of strangers, as the system does for those that the operator has written down.
import { lookup, Resolver } from 'node:dns/promises';

/** DNS answers within two tries of this, or the name does not resolve. */
const TRY_MS = 3_000;

/**
 * IPv4 addresses first. Not getaddrinfo: it runs on the few threads that files and hashes need too, and names of strangers must not
 * keep them waiting. `servers` (`address:port`) take the place of the system's. @throws Error where the name has neither kind of address
 */
export async function byDns(hostname: string, servers?: readonly string[]): Promise<string[]> {
  const resolver = new Resolver({ timeout: TRY_MS, tries: 2 });
  if (servers !== undefined) resolver.setServers(servers);
  const [v4, v6] = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)]);
  if (v4.status === 'rejected' && v6.status === 'rejected') throw v4.reason;
  return [v4, v6].flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
}

/** With `/etc/hosts`. */
export async function bySystem(hostname: string): Promise<string[]> {
  return (await lookup(hostname, { all: true })).map(({ address }) => address);
}
