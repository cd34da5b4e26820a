// Reads from the kernel whether a loopback connection has a keep-alive timer.
import { readFileSync } from 'node:fs';

/** What the kernel names the timer of keep-alives. */
const KEEP_ALIVE_TIMER = '02';

/** Of the connection's end at `port`; `peerPort` is its other end. Both on 127.0.0.1. */
export function hasKeepAlive(port: number | undefined, peerPort: number | undefined): boolean {
  const address = (of = 0): string => `0100007F:${of.toString(16).toUpperCase().padStart(4, '0')}`;
  const line = readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .find((each) => each.includes(` ${address(port)} ${address(peerPort)} `));
  return line?.trim().split(/\s+/)[5]?.startsWith(`${KEEP_ALIVE_TIMER}:`) === true;
}
