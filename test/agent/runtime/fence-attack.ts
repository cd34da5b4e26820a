// Attacks from inside a running container: each target is tried, by TCP, UDP or ping.
import type Docker from 'dockerode';
import { text } from 'node:stream/consumers';
import { PassThrough } from 'node:stream';

/** A program for Node. A port that is said to be closed was reached. A packet by UDP has to be answered, by ICMP to report that nobody is there. */
const PROGRAM = `
const dgram = require('node:dgram');
const net = require('node:net');
const tries = {
  tcp: (host, port, end) => {
    const socket = net.connect({ host, port, timeout: 1500 });
    socket.on('connect', () => end(true, socket.destroy()));
    socket.on('timeout', () => end(false, socket.destroy()));
    socket.on('error', (error) => end(error.code === 'ECONNREFUSED'));
  },
  udp: (host, port, end, index) => {
    const socket = dgram.createSocket(net.isIPv6(host) ? 'udp6' : 'udp4');
    const timer = setTimeout(() => end(false, socket.close()), 1500);
    socket.on('message', () => end(true, clearTimeout(timer), socket.close()));
    // The same port each time: a second attack is another packet of the same connection.
    socket.bind(20_000 + index, () => socket.send('x', port, host, () => undefined));
  },
  icmp: (host, port, end) => {
    const socket = dgram.createSocket('udp4');
    const timer = setTimeout(() => end(false, socket.close()), 1500);
    socket.on('error', (error) => end(error.code === 'ECONNREFUSED', clearTimeout(timer), socket.close()));
    socket.connect(port, host, () => socket.send('x'));
  },
  ping: (host, port, end) => {
    const ping = require('node:child_process').spawn('/bin/ping', ['-c', '1', '-W', '2', host], { stdio: 'ignore' });
    ping.on('error', () => end(false));
    ping.on('close', (code) => end(code === 0));
  },
};
const targets = JSON.parse(process.argv[1]);
const all = Object.entries(targets).map(([name, target], index) => new Promise((resolve) => {
  const [kind, host, port] = target.split(' ');
  tries[kind](host, Number(port), (reached) => resolve({ name, reached }), index);
}));
Promise.all(all).then((found) => console.log(JSON.stringify(found)));
`;

/** A program for Node inside: it asks a name server for a name, from an address. It does not wait for the answer. */
export const QUESTION = `
const [, name, server, from] = process.argv;
const label = Buffer.from(name);
const question = Buffer.concat([Buffer.from([0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, label.length]), label, Buffer.from([0, 0, 1, 0, 1])]);
const socket = require('node:dgram').createSocket('udp4');
socket.bind(0, from, () => socket.send(question, 53, server, () => socket.close()));
`;

/** Targets by name, e.g. `tcp 192.168.1.1 80` or `ping 192.168.1.1`; `node` runs Node at the place of the attack. */
export async function attack(
  node: (argv: string[]) => Promise<string>,
  targets: Record<string, string>,
): Promise<{ reached: string[]; refused: string[] }> {
  const found = JSON.parse(await node(['-e', PROGRAM, JSON.stringify(targets)])) as {
    name: string;
    reached: boolean;
  }[];
  const names = (reached: boolean): string[] => found.filter((one) => one.reached === reached).map(({ name }) => name);
  return { reached: names(true), refused: names(false) };
}

/** What the program writes, run as root in a container. */
export async function runInside(container: Docker.Container, argv: string[]): Promise<string> {
  const exec = await container.exec({ Cmd: argv, AttachStdout: true, AttachStderr: true, User: '0' });
  const raw = await exec.start({});
  const output = new PassThrough();
  container.modem.demuxStream(raw, output, output);
  raw.on('end', () => output.end());
  return text(output);
}
