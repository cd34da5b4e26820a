// The network fence for nft: its rules, by which a container may reach the public internet and nothing else, and their installation in the kernel
// with a check that nobody has changed them.
import { run } from './run.ts';
import { BlockList, isIPv4, isIPv6 } from 'node:net';

/** Bridges with such names are fenced from their first packet. A bridge's name has at most 15 characters. */
export const FENCED_BRIDGE_PREFIX = 'svcbr-';
/** The table `inet <name>`, which is ours alone. */
const FENCE_TABLE = 'svc_fence';
/** Counts the packets that were refused. */
const FENCE_COUNTER = 'refused';

export interface FenceFacts {
  /** Names of workloads' bridges that do not begin with our prefix. */
  bridges: readonly string[];
  /** Addresses of this host's name servers, as written in its files. */
  resolvers: readonly string[];
  /** Networks of this host's interfaces as `address/length`, including those that are closed anyway. */
  networks: readonly string[];
}

/** Networks outside the public internet (IANA's special-purpose registries), and Azure's platform address, which looks public. */
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
/** An own network with a shorter prefix is a mistake, or a tunnel that covers half of the internet, and is ignored. */
const NETWORK_LENGTH_MIN = 8;
/** Closed networks within the public range: tunnels to IPv4 addresses (Teredo, 6to4), and documentation. */
const CLOSED_IPV6 = ['2001::/32', '2001:db8::/32', '2002::/16', '3fff::/20'];

/**
 * Replaces the whole table in one transaction and changes no other rules. Our chains run before those of iptables and Docker (priority
 * 0), which may still refuse a packet that ours accept. Replies pass because of the state of their connection. Every other packet of a
 * container is checked, so connections from before the fence are cut too. Nobody can open a new connection into a container.
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

export interface Nftables {
  /** Installs these rules unless they are installed unchanged. Resolves with true after a change. Rejects with advice for the supplier. */
  hold(rules: string): Promise<boolean>;
  /** How many packets the table has refused since it was last installed. */
  refused(): Promise<number>;
}

const NFT_MS_MAX = 10_000;
const ERROR_CHARS_MAX = 300;
const TRIES_MAX = 5;
/** Lists the table without counters, because they change by themselves. */
const LIST = ['--stateless', 'list', 'table', 'inet', FENCE_TABLE];

export function openNftables(): Nftables {
  /** The installed rules, and how nft lists them. If the listing differs, another program has changed the table. */
  let installed: { rules: string; listing: string } | undefined;
  return {
    hold: async (rules) => {
      if (installed?.rules === rules && (await nft(LIST).catch(() => 'none')) === installed.listing) return false;
      installed = { rules, listing: await install(rules) };
      return true;
    },
    refused: async () => {
      const text = await nft(['list', 'counter', 'inet', FENCE_TABLE, FENCE_COUNTER]);
      return Number(/packets (\d+)/.exec(text)?.[1] ?? 0);
    },
  };
}

/** Rejects if this agent cannot install a fence. The supplier sees the error at the command line. */
export async function assertNftables(): Promise<void> {
  await nft(['list', 'tables']);
}

/** Removes the fence if it exists. */
export async function removeFence(): Promise<void> {
  if ((await nft(['list', 'tables'])).split('\n').includes(`table inet ${FENCE_TABLE}`)) {
    await nft(['delete', 'table', 'inet', FENCE_TABLE]);
  }
}

/**
 * Closes the public networks of the host's interfaces: its own address, which a router may send back to it, and neighbours that trust
 * their network. Private networks are closed already, and some of them come and go with containers.
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
 * Opens port 53 of the host's name servers for containers, even if their addresses are closed. Servers on the loopback are left out,
 * because the engine asks them itself, and so are addresses with a zone, which containers cannot reach.
 */
function nameServers(resolvers: readonly string[]): string {
  const asked = [...new Set(resolvers)].filter((each) => !/^127\.|^::1$|%/.test(each)).toSorted();
  const accept = (family: 'ip' | 'ip6', addresses: string[]): string[] =>
    ['udp', 'tcp'].map((protocol) => `    ${family} daddr { ${addresses.join(', ')} } ${protocol} dport 53 accept`);
  const [ipv4, ipv6] = [asked.filter(isIPv4), asked.filter(isIPv6)];
  return [...(ipv4.length > 0 ? accept('ip', ipv4) : []), ...(ipv6.length > 0 ? accept('ip6', ipv6) : [])].join('\n');
}

/** Installs the rules and returns nft's listing. Another program may change them in between, so this repeats until two listings agree. */
async function install(rules: string): Promise<string> {
  let shown: string | undefined;
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    await nft(['-f', '-'], rules);
    const listing = await nft(LIST);
    if (listing === shown) return listing;
    shown = listing;
  }
  throw new Error(
    `another program changes the table inet ${FENCE_TABLE} as often as the agent installs it: find and stop that program`,
  );
}

async function nft(args: readonly string[], input?: string): Promise<string> {
  const result = await run(['nft', ...args], {
    timeoutMs: NFT_MS_MAX,
    ...(input === undefined ? {} : { input }),
  }).catch((error: unknown) => {
    throw new Error('the program nft is missing: install the package nftables', { cause: error });
  });
  if (result.code === 0) return result.stdout;
  throw new Error(`nft ${args.join(' ')} failed: ${result.stderr.trim().slice(0, ERROR_CHARS_MAX)}`);
}
