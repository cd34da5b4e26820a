// Limits the open connections of one address, so that no caller can take them all.
import { BlockList, isIPv6, type Socket } from 'node:net';
import { networkOf } from '../../../shared/client-network.ts';
import type { Clock } from '../../../shared/clock.ts';
import { type Log, throttledLog } from '../../../shared/log.ts';

export interface AddressLimit {
  /** Counts a connection until it closes. False if the address has too many; then the connection is already closed. */
  admit(socket: Socket): boolean;
  /** Stops counting a connection whose caller has authenticated. Also works with the TLS socket of that connection. */
  letGo(socket: Pick<Socket, 'remoteAddress' | 'remotePort'>): void;
}

interface AddressLimitOptions {
  max: number;
  /** Addresses or networks of proxies. A proxy carries the connections of many callers and has limits of its own. */
  trusted: readonly string[];
}

interface Client {
  /** Connections by address and port. Different addresses of a network can use the same port. */
  connections: Set<string>;
  wasTold: boolean;
}

/** All addresses of an IPv6 /64 count as one. */
export function openAddressLimit(
  { max, trusted }: AddressLimitOptions,
  deps: { log: Log; clock: Pick<Clock, 'monotonicMs'> },
): AddressLimit {
  // An address that closes a connection and opens two causes a line each time.
  const log = throttledLog(deps.log, deps.clock);
  const proxies = listOf(trusted);
  const clients = new Map<string, Client>();

  const forget = (address: string, port: number): void => {
    const network = networkOf(address);
    const client = clients.get(network);
    if (client?.connections.delete(`${address} ${port}`) !== true) return;
    client.wasTold = false;
    if (client.connections.size === 0) clients.delete(network);
  };

  return {
    admit: (socket) => {
      const { remoteAddress: address, remotePort: port } = socket;
      // The socket has closed already, or is a unix socket.
      if (address === undefined || port === undefined || isListed(proxies, address)) return true;
      const network = networkOf(address);
      const client = clients.get(network) ?? { connections: new Set(), wasTold: false };
      if (client.connections.size >= max) {
        if (!client.wasTold)
          log.warn({ client_ip: address, connections: max }, 'further connections of an address are refused');
        client.wasTold = true;
        socket.destroy();
        return false;
      }
      clients.set(network, client);
      client.connections.add(`${address} ${port}`);
      socket.once('close', () => forget(address, port));
      return true;
    },
    letGo: ({ remoteAddress: address, remotePort: port }) => {
      if (address !== undefined && port !== undefined) forget(address, port);
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
