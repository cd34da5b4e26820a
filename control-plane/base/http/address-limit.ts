// How many connections one address may have open: no stranger can take them all.
import { BlockList, isIPv6, type Socket } from 'node:net';
import { networkOf } from '../../../shared/client-network.ts';
import type { Log } from '../../../shared/log.ts';

export interface AddressLimit {
  /** Counts a connection until it closes. False where it was one too many: it is closed already. */
  admit(socket: Socket): boolean;
  /** Whose connection this is has proven itself: it counts no more. Knows it also by its TLS side. */
  letGo(socket: Pick<Socket, 'remoteAddress' | 'remotePort'>): void;
}

interface AddressLimitOptions {
  max: number;
  /** Addresses or networks of proxies: each stands for many, and has limits of its own. */
  trusted: readonly string[];
}

interface Client {
  /** By the port on its side. */
  connections: Set<number>;
  wasTold: boolean;
}

/** Neighbours in one IPv6 /64 count as one. */
export function openAddressLimit({ max, trusted }: AddressLimitOptions, log: Log): AddressLimit {
  const proxies = listOf(trusted);
  const clients = new Map<string, Client>();

  const forget = (network: string, port: number): void => {
    const client = clients.get(network);
    if (client?.connections.delete(port) !== true) return;
    client.wasTold = false;
    if (client.connections.size === 0) clients.delete(network);
  };

  return {
    admit: (socket) => {
      const { remoteAddress: address, remotePort: port } = socket;
      // Gone already, or a unix socket.
      if (address === undefined || port === undefined || isListed(proxies, address)) return true;
      const network = networkOf(address);
      const client = clients.get(network) ?? { connections: new Set(), wasTold: false };
      if (client.connections.size >= max) {
        if (!client.wasTold)
          log.warn({ client_ip: address, connections: max }, 'an address is refused more connections');
        client.wasTold = true;
        socket.destroy();
        return false;
      }
      clients.set(network, client);
      client.connections.add(port);
      socket.once('close', () => forget(network, port));
      return true;
    },
    letGo: ({ remoteAddress: address, remotePort: port }) => {
      if (address !== undefined && port !== undefined) forget(networkOf(address), port);
    },
  };
}

function listOf(entries: readonly string[]): BlockList {
  const list = new BlockList();
  for (const entry of entries) {
    const [address = '', prefix] = entry.split('/');
    const family = isIPv6(address) ? 'ipv6' : 'ipv4';
    if (prefix === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(prefix), family);
  }
  return list;
}

function isListed(list: BlockList, address: string): boolean {
  const family = isIPv6(address) ? 'ipv6' : 'ipv4';
  return list.check(address, family);
}
