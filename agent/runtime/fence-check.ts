// Attacks the network fence from inside a container, to prove that it holds with this host's engine and kernel.
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { Nftables } from '../host/nftables.ts';
import type { BareNode } from './disk-check.ts';
import type { Engine } from './engine.ts';

const HELD = 0;
const NOT_HELD = 3;

/** One address of each closed kind. */
const CLOSED_TARGETS = ['10.0.0.1', '172.16.0.1', '192.168.0.1', '192.168.1.1', '100.64.0.1', '169.254.169.254'];
const CLOSED_PORT = 80;
/** Enough for every host nearby. A refusal may show as a timeout, because the kernel limits the rate of its ICMP errors. */
const CONNECT_MS_MAX = 1000;

/**
 * A bare container tries to connect to our own listener at every address of this host, and to the closed addresses. An answer "port
 * closed" counts as reached too. The counter of the fence must have grown, or the packets of containers never pass the fence.
 * @throws Error that names the hole
 */
export async function attackFence(deps: { engine: Engine; node: BareNode; nftables: Nftables }): Promise<void> {
  const { engine, node, nftables } = deps;
  const listener = createServer((socket) => socket.destroy()).listen(0, '0.0.0.0');
  await once(listener, 'listening');
  try {
    const { port } = listener.address() as AddressInfo;
    const before = await nftables.refused();
    const argv = [...node.argv, '-e', attackProgram(ownAddresses(), port)];
    const code = await engine.runBare({ name: 'fence', argv, mounts: node.mounts, disk_mib: null, network: true });
    if (code !== HELD && code !== NOT_HELD) throw new Error(`the program that attacks it failed with code ${code}`);
    if ((await nftables.refused()) === before) {
      throw new Error(
        'it saw no packet of a container: the engine has a network of its own (a virtual machine, or another network namespace)',
      );
    }
    if (code === NOT_HELD) throw new Error('a container reached this host, or a private network through it');
  } finally {
    listener.close();
  }
}

function ownAddresses(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ family, internal }) => family === 'IPv4' && !internal)
    .map(({ address }) => address);
}

/** The program also attacks the container's gateway, which is the host too. Its address is only known inside. */
function attackProgram(hostAddresses: string[], port: number): string {
  const targets = [
    ...hostAddresses.map((host) => ({ host, port })),
    ...CLOSED_TARGETS.map((host) => ({ host, port: CLOSED_PORT })),
  ];
  return `
const net = require('node:net');
const rows = require('node:fs').readFileSync('/proc/net/route', 'utf8').split('\\n').map((row) => row.split('\\t'));
const gateways = rows.filter((row) => row[1] === '00000000').map((row) => Buffer.from(row[2], 'hex').reverse().join('.'));
if (gateways.length === 0) process.exit(1);
const targets = [...gateways.map((host) => ({ host, port: ${port} })), ...${JSON.stringify(targets)}];
const reaches = (target) => new Promise((resolve) => {
  const socket = net.connect({ ...target, timeout: ${CONNECT_MS_MAX} });
  const end = (reached) => { socket.destroy(); resolve(reached); };
  socket.on('connect', () => end(true));
  socket.on('timeout', () => end(false));
  socket.on('error', (error) => end(error.code === 'ECONNREFUSED'));
});
Promise.all(targets.map(reaches)).then((all) => process.exit(all.includes(true) ? ${NOT_HELD} : ${HELD}));
`;
}
