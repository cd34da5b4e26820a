// Resolves names to addresses: by DNS for names from customers, by the system for names that the operator has configured.
import { lookup, Resolver } from 'node:dns/promises';

/** Time limit of one DNS query. After two queries without an answer, the name does not resolve. */
const TRY_MS = 3_000;

/**
 * Returns IPv4 addresses first. It does not use getaddrinfo, which blocks one of the few threads that files and hashes need too. `servers`
 * (`address:port`) replace the system's servers. @throws Error if the name has no address
 */
export async function byDns(hostname: string, servers?: readonly string[]): Promise<string[]> {
  const resolver = new Resolver({ timeout: TRY_MS, tries: 2 });
  if (servers !== undefined) resolver.setServers(servers);
  const [v4, v6] = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)]);
  if (v4.status === 'rejected' && v6.status === 'rejected') throw v4.reason;
  return [v4, v6].flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
}

/** Resolves as the system does, with `/etc/hosts`. */
export async function bySystem(hostname: string): Promise<string[]> {
  return (await lookup(hostname, { all: true })).map(({ address }) => address);
}
