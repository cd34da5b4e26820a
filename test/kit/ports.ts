// Ports of the loopback interface for programs that listen where a test wants. Tests that run at the same time get different ones.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';

/** The range lies below the one from which Linux takes the ports of outgoing connections: nobody takes a port while a program starts again. */
const RANGE = { first: 20_000, last: 32_767 };
/** The number of workers of a test run that have ports of their own. Further workers share these ports. */
const SHARES = 16;
const SHARE = Math.floor((RANGE.last - RANGE.first + 1) / SHARES);

const share = RANGE.first + (Number(process.env['VITEST_POOL_ID'] ?? 0) % SHARES) * SHARE;
/** The place where the next search begins: nobody may listen yet at a port that was given away. */
let next = Math.floor(Math.random() * SHARE);

/** A TCP port that was free a moment ago. */
export async function freePort(): Promise<number> {
  return (await freePorts(1)).first;
}

/** `count` TCP ports in a row that were free a moment ago. Throws if there are none. */
export async function freePorts(count: number): Promise<{ first: number; last: number }> {
  for (let tries = 0; tries < SHARE; tries += 1) {
    if (next + count > SHARE) next = 0;
    const first = share + next;
    next += count;
    const ports = Array.from({ length: count }, (_, i) => first + i);
    if ((await Promise.all(ports.map(isFree))).every(Boolean)) return { first, last: first + count - 1 };
  }
  throw new Error(
    `no ${count} free ports in a row from ${share} to ${share + SHARE - 1} on this machine: end what listens there`,
  );
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    return true;
  } catch {
    return false;
  } finally {
    server.close();
  }
}

/** What the kernel names the timer of keep-alives. */
const KEEP_ALIVE_TIMER = '02';

/** Whether the connection's end at `port` has keep-alives; `peerPort` is its other end. Both are on 127.0.0.1. */
export function hasKeepAlive(port: number | undefined, peerPort: number | undefined): boolean {
  const address = (of = 0): string => `0100007F:${of.toString(16).toUpperCase().padStart(4, '0')}`;
  const line = readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .find((each) => each.includes(` ${address(port)} ${address(peerPort)} `));
  return line?.trim().split(/\s+/)[5]?.startsWith(`${KEEP_ALIVE_TIMER}:`) === true;
}
