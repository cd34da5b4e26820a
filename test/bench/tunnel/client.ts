// The user of a tunnel: measures what the port in front of it gives.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { percentile } from '../measure.ts';
import { ECHO_BYTES, encodeRequest, writeBytes, type Task } from './load.ts';
import { serveOrders, type Answer, type Order } from '../side.ts';

const READ_BUFFER = Buffer.alloc(1024 * 1024);
/** Bytes that a stalled reader requests: more than all buffers on the path together. */
const STALLED_BYTES = 1024 * 1024 * 1024;

const stalled: Socket[] = [];

serveOrders((order) => {
  const [port, amount] = [Number(order['port']), Number(order['amount'])];
  switch (order.kind) {
    case 'download':
      return download(port, amount);
    case 'upload':
      return upload(port, amount);
    case 'echo':
      return echo(port, amount);
    case 'stall':
      return stall(port, amount);
    default:
      return release(order);
  }
});

/** The clock starts at the first byte, because the opening of a stream is not throughput. */
async function download(port: number, bytes: number): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  let [startMs, left] = [0, bytes];
  const socket = connect({
    port,
    host: '127.0.0.1',
    noDelay: true,
    onread: {
      buffer: READ_BUFFER,
      callback: (length) => {
        if (left === bytes) startMs = performance.now();
        left -= length;
        if (left === 0) resolve(rate(bytes, startMs));
        return true;
      },
    },
  });
  socket.once('close', () => reject(new Error('the tunnel closed the connection')));
  socket.write(encodeRequest('send', bytes));
  const answer = await promise;
  socket.destroy();
  return answer;
}

async function upload(port: number, bytes: number): Promise<Answer> {
  const socket = open(port, 'take', bytes);
  await once(socket, 'data');
  const startMs = performance.now();
  writeBytes(socket, bytes);
  await once(socket, 'data');
  const answer = rate(bytes, startMs);
  socket.destroy();
  return answer;
}

async function echo(port: number, count: number): Promise<Answer> {
  const socket = open(port, 'echo', 0);
  const ping = Buffer.alloc(ECHO_BYTES, 'ping');
  const tripsUs: number[] = [];
  for (let i = 0; i < count; i += 1) {
    const startMs = performance.now();
    socket.write(ping);
    let left = ECHO_BYTES;
    while (left > 0) left -= ((await once(socket, 'data')) as [Buffer])[0].length;
    tripsUs.push((performance.now() - startMs) * 1000);
  }
  socket.destroy();
  return { p50Us: percentile(tripsUs, 0.5), p99Us: percentile(tripsUs, 0.99) };
}

/** Opens connections that ask for a lot and read nothing. */
async function stall(port: number, count: number): Promise<Answer> {
  const opened = Array.from({ length: count }, () => open(port, 'send', STALLED_BYTES).pause());
  stalled.push(...opened);
  await Promise.all(opened.map((socket) => once(socket, 'connect')));
  return {};
}

async function release(order: Order): Promise<Answer> {
  if (order.kind !== 'release') throw new Error(`no such order: ${order.kind}`);
  for (const socket of stalled.splice(0)) socket.destroy();
  return {};
}

function open(port: number, task: Task, bytes: number): Socket {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  socket.once('end', () => socket.destroy(new Error('the tunnel closed the connection')));
  socket.write(encodeRequest(task, bytes));
  return socket;
}

function rate(bytes: number, startMs: number): Answer {
  return { mbPerSecond: bytes / 1e6 / ((performance.now() - startMs) / 1000) };
}
