// What lies around a private engine's host: one neighbour that has addresses of its network, of the cloud's metadata and of the public
// internet, and is the host's name server. Nothing leaves the two namespaces.
import { join } from 'node:path';
import type { Engine } from './engine.ts';
import { runProgram, startProgram, type Program } from './processes.ts';
import { requireProgram } from './setup.ts';

/** What the listeners answer to. */
export const TCP_PORTS = [53, 80, 8080];
export const UDP_PORT = 9000;
export const DNS_PORT = 53;
export const MULTICAST_GROUP = { host: '239.1.2.3', port: 9001 } as const;
/** The address of every name. */
export const NAMED_ADDRESS = '46.0.0.2';
/** Addresses outside of the host's networks, which the neighbour has too, and the one that leads there. */
const FAR = [
  ['46.0.0.2/32', '45.0.0.2'],
  ['2a00:78::2/128', '2a00:77::2'],
] as const;

/** Network of the host's interface, and the neighbour's address in it. */
const NETWORKS = [
  ['192.168.77.1/24', '192.168.77.2/24'],
  ['10.77.0.1/24', '10.77.0.2/24'],
  ['172.31.77.1/24', '172.31.77.2/24'],
  ['100.64.77.1/24', '100.64.77.2/24'],
  ['169.254.169.1/24', '169.254.169.254/24'],
  ['168.63.129.1/24', '168.63.129.16/24'],
  ['198.18.77.1/24', '198.18.77.2/24'],
  ['45.0.0.1/24', '45.0.0.2/24'],
  ['fd00:77::1/64', 'fd00:77::2/64'],
  ['2a00:77::1/64', '2a00:77::2/64'],
  ['2002:c0a8:4d02::1/64', '2002:c0a8:4d02::2/64'],
] as const;

export interface Outside {
  /** The host joins the multicast group on the interface with this address, as a service that greets its network does. */
  join(address: string): Promise<void>;
  /** Resolves when the neighbour has been asked for a name. */
  asked(name: string): Promise<void>;
  /** What the neighbour has been asked so far. */
  names(): string;
  /** Runs a program in the host's network; resolves with its output. */
  onHost(...argv: string[]): Promise<string>;
  /** The same in the neighbour's. */
  onNeighbour(...argv: string[]): Promise<string>;
  /** The neighbour sends what is for these addresses to the host. */
  routeBack(subnet: string): Promise<void>;
  stop(): Promise<void>;
}

/** `nameServers`: IPv4 addresses that the neighbour takes as its own. */
export async function openOutside(engine: Engine, nameServers: readonly string[]): Promise<Outside> {
  const onHost = async (...argv: string[]): Promise<string> => {
    const [command, ...args] = engine.inside(argv);
    return runProgram({ command, args });
  };
  const listener = [process.execPath, join(import.meta.dirname, 'outside-listener.ts')];
  const start = async (...argv: string[]): Promise<Program> => {
    const [command, ...args] = engine.inside(argv);
    const program = startProgram({ command, args, stdin: 'pipe' });
    await program.waitForOutput(/^ready$/m);
    return program;
  };
  const [host, neighbour] = await Promise.all([start(...listener), start('unshare', '--net', '--', ...listener)]);

  const onNeighbour = (...argv: string[]): Promise<string> =>
    runProgram({ command: 'nsenter', args: [`--net=/proc/${neighbour.pid}/ns/net`, '--', ...argv] });

  const ip = requireProgram('ip');
  const at = async (where: 'host' | 'neighbour', ...args: string[]): Promise<void> => {
    await (where === 'host' ? onHost : onNeighbour)(ip, ...args);
  };
  await at('host', 'link', 'add', 'lan0', 'type', 'veth', 'peer', 'name', 'lan0', 'netns', String(neighbour.pid));
  for (const [i, where] of (['host', 'neighbour'] as const).entries()) {
    await at(where, 'link', 'set', 'lo', 'up');
    await at(where, 'link', 'set', 'lan0', 'up');
    for (const pair of NETWORKS) await at(where, 'addr', 'add', pair[i] ?? '', 'dev', 'lan0', ...ready(pair[i] ?? ''));
  }
  for (const [address, via] of FAR) {
    await at('neighbour', 'addr', 'add', address, 'dev', 'lan0', ...ready(address));
    await at('host', 'route', 'add', address, 'via', via);
  }
  // What listens there on all addresses answers from the far one.
  await at('neighbour', 'route', 'change', '45.0.0.0/24', 'dev', 'lan0', 'src', NAMED_ADDRESS);
  for (const address of [...nameServers, NAMED_ADDRESS]) {
    if (address !== NAMED_ADDRESS) {
      await at('neighbour', 'addr', 'add', `${address}/32`, 'dev', 'lan0');
      await at('host', 'route', 'add', `${address}/32`, 'dev', 'lan0');
    }
    neighbour.write(`names ${address}\n`);
    await neighbour.waitForOutput(new RegExp(`^names ${address}$`, 'm'));
  }
  return {
    join: async (address) => {
      host.write(`join ${address}\n`);
      await host.waitForOutput(new RegExp(`^join ${address}$`, 'm'));
    },
    asked: async (name) => {
      await neighbour.waitForOutput(new RegExp(`^asked .*${name}`, 'm'));
    },
    names: neighbour.output,
    onHost,
    onNeighbour,
    routeBack: (subnet) =>
      at('neighbour', 'route', 'add', subnet, 'via', subnet.includes(':') ? '2a00:77::1' : '45.0.0.1'),
    stop: async () => {
      await Promise.all([host.stop('SIGKILL'), neighbour.stop('SIGKILL')]);
    },
  };
}

/** IPv6 looks for somebody else with the address first, and the address does nothing meanwhile. */
function ready(address: string): string[] {
  return address.includes(':') ? ['nodad'] : [];
}
