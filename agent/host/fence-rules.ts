// The network fence as text for nft: what a container's network may reach, and that is the public internet alone.
import { BlockList, isIPv4, isIPv6 } from 'node:net';

/** Bridges with such names are fenced from their first packet. A bridge's name has at most 15 characters. */
export const FENCED_BRIDGE_PREFIX = 'svcbr-';
/** `inet <name>`: the table is ours alone. */
export const FENCE_TABLE = 'svc_fence';
/** Counts the packets that were refused. */
export const FENCE_COUNTER = 'refused';

export interface FenceFacts {
  /** Bridges of workloads that do not have our prefix. */
  bridges: readonly string[];
  /** Addresses of this host's name servers, as its files write them. */
  resolvers: readonly string[];
  /** Networks of this host's own interfaces as `address/length`, also those that are closed anyway. */
  networks: readonly string[];
}

/** What is not the public internet (IANA's special-purpose registries), and Azure's platform address, which looks public. */
const CLOSED_IPV4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '168.63.129.16/32',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
];
const PUBLIC_IPV6 = '2000::/3';
/** A shorter one is a mistake, or a tunnel that takes half of the internet. */
const NETWORK_LENGTH_MIN = 8;
/** Within the public range: tunnels that lead to IPv4 addresses in disguise (Teredo, 6to4), and documentation. */
const CLOSED_IPV6 = ['2001::/32', '2001:db8::/32', '2002::/16', '3fff::/20'];

/**
 * Replaces the whole table in one transaction; the rules of others stay as they are. Chains come before those of iptables and Docker
 * (priority 0), and what this one lets pass is still theirs to refuse. Only answers pass by the state of their connection; each packet that
 * a container sends of its own accord is looked at, so that connections from before the fence are cut too. Nothing new comes in.
 */
export function fenceRules({ bridges, resolvers, networks }: FenceFacts): string {
  const fenced = [`${FENCED_BRIDGE_PREFIX}*`, ...bridges.toSorted()];
  const each = (direction: 'iifname' | 'oifname', chain: string): string =>
    fenced.map((bridge) => `    ${direction} "${bridge}" jump ${chain}`).join('\n');
  const names = nameServers(resolvers);
  return `table inet ${FENCE_TABLE}
delete table inet ${FENCE_TABLE}
table inet ${FENCE_TABLE} {
  counter ${FENCE_COUNTER} {
  }
  chain input {
    type filter hook input priority -10; policy accept;
${each('iifname', 'to_host')}
  }
  chain forward {
    type filter hook forward priority -10; policy accept;
${each('iifname', 'from_container')}
${each('oifname', 'to_container')}
  }
  chain to_host {
    ct state established ct direction reply accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
${names}
    goto refuse
  }
  chain from_container {
    fib saddr . iif oif missing goto refuse
    fib daddr . iif oif exists accept
    ct status dnat goto refuse
${names}
    ip daddr { ${CLOSED_IPV4.join(', ')} } goto refuse
    ip6 daddr != ${PUBLIC_IPV6} goto refuse
    ip6 daddr { ${CLOSED_IPV6.join(', ')} } goto refuse
${ownNetworks(networks)}
  }
  chain to_container {
    ct state established ct direction reply accept
    ct state related meta l4proto { icmp, ipv6-icmp } accept
    goto refuse
  }
  chain refuse {
    counter name "${FENCE_COUNTER}"
    reject with icmpx type admin-prohibited
  }
}
`;
}

/**
 * Public networks that the host is in: its own address, which a router may lead back to itself, and neighbours that trust whoever is in their
 * network. The others are closed already, and some of them come and go with containers.
 */
function ownNetworks(networks: readonly string[]): string {
  const open = [...new Set(networks)].filter((network) => isPublic(network)).toSorted();
  return open.map((network) => `    ${network.includes(':') ? 'ip6' : 'ip'} daddr ${network} goto refuse`).join('\n');
}

function isPublic(network: string): boolean {
  const [address = '', length = ''] = network.split('/');
  if (!/^\d+$/.test(length) || Number(length) < NETWORK_LENGTH_MIN) return false;
  if (isIPv4(address)) return !closed('ipv4').check(address, 'ipv4');
  return isIPv6(address) && public6().check(address, 'ipv6') && !closed('ipv6').check(address, 'ipv6');
}

function closed(family: 'ipv4' | 'ipv6'): BlockList {
  return blockList(family === 'ipv4' ? CLOSED_IPV4 : CLOSED_IPV6, family);
}

function public6(): BlockList {
  return blockList([PUBLIC_IPV6], 'ipv6');
}

function blockList(networks: readonly string[], family: 'ipv4' | 'ipv6'): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address = '', length = ''] = network.split('/');
    list.addSubnet(address, Number(length), family);
  }
  return list;
}

/**
 * Containers ask the host's name servers from their own network: port 53 of these, also where the address is closed. The engine itself
 * asks one at the host's loopback, and one with a zone is out of their reach.
 */
function nameServers(resolvers: readonly string[]): string {
  const asked = [...new Set(resolvers)].filter((each) => !/^127\.|^::1$|%/.test(each)).toSorted();
  const accept = (family: 'ip' | 'ip6', addresses: string[]): string[] =>
    ['udp', 'tcp'].map((protocol) => `    ${family} daddr { ${addresses.join(', ')} } ${protocol} dport 53 accept`);
  const [ipv4, ipv6] = [asked.filter(isIPv4), asked.filter(isIPv6)];
  return [...(ipv4.length > 0 ? accept('ip', ipv4) : []), ...(ipv6.length > 0 ? accept('ip6', ipv6) : [])].join('\n');
}
