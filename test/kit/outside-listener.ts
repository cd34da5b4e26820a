// Answers in the network it is started in: TCP connections, UDP packets (also to a multicast group), and DNS questions.
// Prints `ready`. Each line of its input is then `join <address>` (joins the multicast group at the interface with this address) or
// `names <address>` (answers DNS there). It prints each line when that is done, and each name that somebody asks for.
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { DNS_PORT, MULTICAST_GROUP, NAMED_ADDRESS, TCP_PORTS, UDP_PORT } from './outside.ts';

for (const port of TCP_PORTS) await once(createServer((socket) => socket.end()).listen(port, '::'), 'listening');

const echo = createSocket({ type: 'udp6' });
echo.on('message', (message, { address, port }) => echo.send(message, port, address));
await once(echo.bind(UDP_PORT), 'listening');

const group = createSocket({ type: 'udp4' });
group.on('message', (message, { address, port }) => group.send(message, port, address));
await once(group.bind(MULTICAST_GROUP.port), 'listening');

createInterface({ input: process.stdin }).on('line', (line) => {
  const [wish, at = ''] = line.split(' ');
  if (wish === 'join') group.addMembership(MULTICAST_GROUP.host, at);
  if (wish === 'join') console.log(line);
  if (wish === 'names') nameServer(at, () => console.log(line));
});
console.log('ready');

/** Bound to its address: answers come from where the question went. */
function nameServer(address: string, ready: () => void): void {
  const names = createSocket({ type: 'udp4' });
  names.on('message', (question, from) => names.send(answer(question), from.port, from.address));
  names.bind(DNS_PORT, address, ready);
}

/** One question comes back with one address if it asks for IPv4, with none otherwise. */
function answer(question: Buffer): Buffer {
  const HEADER = 12;
  const end = question.indexOf(0, HEADER) + 5;
  const asksIpv4 = question.readUInt16BE(end - 4) === 1;
  console.log(`asked ${question.subarray(HEADER + 1, end - 5).toString('latin1')}`);
  const header = Buffer.from(question.subarray(0, HEADER));
  header.writeUInt16BE(0x8180, 2);
  header.writeUInt16BE(asksIpv4 ? 1 : 0, 6);
  header.fill(0, 8);
  const record = Buffer.from([0xc0, HEADER, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...NAMED_ADDRESS.split('.').map(Number)]);
  return Buffer.concat([header, question.subarray(HEADER, end), ...(asksIpv4 ? [record] : [])]);
}
