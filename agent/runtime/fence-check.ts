// Attacks the network fence from inside a container: the proof that it holds on this very host, with this engine and this kernel.
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { Nftables } from '../host/nftables.ts';
import type { BareNode } from './disk-check.ts';
import type { Engine } from './engine.ts';

const HELD = 0;
const NOT_HELD = 3;

/** One of each kind of address that a tenant has no business with. */
const CLOSED_TARGETS = ['10.0.0.1', '172.16.0.1', '192.168.0.1', '192.168.1.1', '100.64.0.1', '169.254.169.254'];
const CLOSED_PORT = 80;
/** Nobody here is further away; of many refusals a kernel tells only some at once. */
const CONNECT_MS_MAX = 1000;

/**
 * A bare container tries to reach a listener of ours at every address of this host, and closed addresses. A host that says that a port is
 * closed was reached, too. The table has counted where containers meet it at all.
 * @throws Error that says what was found
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

/** The address of the container's gateway, which is the host too, is only known inside. */
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
