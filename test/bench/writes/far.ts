// Makes a server far away: passes bytes on, and each piece some time after it came, in both directions.
//
// It shares the processors with the programs that it stands between, so it must take little of them. It sleeps between its turns, so that a turn
// finds many pieces and writes those of one connection at once. To be woken for each piece, and to set a timer for it, took a tenth of the
// machine. Timers also let pieces go too early, because they count from the beginning of the turn in which they are set.
import { createServer, connect, type AddressInfo, type Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { serveOrders } from '../side.ts';

/** How late a piece may go. */
const TURN_MS = 0.3;

interface Passed {
  dueMs: number;
  to: Socket;
  /** Undefined if the sender has closed its connection. */
  piece: Buffer | undefined;
}

serveOrders(async (order) => {
  const passOn = openDelay(Number(order['oneWayMs']));
  const server = createServer({ noDelay: true }, (near) => {
    const far = connect({ port: Number(order['port']), host: '127.0.0.1', noDelay: true });
    join(near, far, passOn);
    join(far, near, passOn);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { port: (server.address() as AddressInfo).port };
});

type PassOn = (to: Socket, piece: Buffer | undefined) => void;

function join(from: Socket, to: Socket, passOn: PassOn): void {
  from.on('data', (piece) => passOn(to, piece));
  from.on('close', () => passOn(to, undefined));
  from.on('error', () => to.destroy());
}

/** All pieces wait equally long, so they go in the order in which they came. */
function openDelay(waitMs: number): PassOn {
  const waiting: Passed[] = [];
  const nobody = new Int32Array(new SharedArrayBuffer(4));
  const turn = (): void => {
    Atomics.wait(nobody, 0, 0, TURN_MS);
    send(waiting.splice(0, dueBy(waiting, performance.now())));
    if (waiting.length > 0) setImmediate(turn);
  };
  return (to, piece) => {
    if (waiting.length === 0) setImmediate(turn);
    waiting.push({ dueMs: performance.now() + waitMs, to, piece });
  };
}

/** The number of pieces that are due. */
function dueBy(waiting: readonly Passed[], nowMs: number): number {
  const first = waiting.findIndex(({ dueMs }) => dueMs > nowMs);
  return first === -1 ? waiting.length : first;
}

function send(passed: readonly Passed[]): void {
  const corked = new Set<Socket>();
  for (const { to, piece } of passed) {
    if (piece === undefined) {
      to.destroySoon();
      continue;
    }
    if (!corked.has(to)) to.cork();
    corked.add(to);
    to.write(piece);
  }
  for (const to of corked) to.uncork();
}
