// Makes a server far away: passes bytes on, and each piece some time after it came, in both directions.
import { createServer, connect, type AddressInfo, type Socket } from 'node:net';
import { serveOrders } from '../side.ts';

serveOrders(async (order) => {
  const server = createServer({ noDelay: true }, (near) => {
    const far = connect({ port: Number(order['port']), host: '127.0.0.1', noDelay: true });
    pass(near, far, Number(order['oneWayMs']));
    pass(far, near, Number(order['oneWayMs']));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { port: (server.address() as AddressInfo).port };
});

function pass(from: Socket, to: Socket, afterMs: number): void {
  from.on('data', (piece) => void setTimeout(() => send(to, piece), afterMs));
  from.on('close', () => void setTimeout(() => to.destroy(), afterMs));
  from.on('error', () => to.destroy());
}

/** What is due at the same moment is written at once. One write for each piece would take processor time from the programs that are measured. */
function send(to: Socket, piece: Buffer): void {
  if (to.writableCorked === 0) {
    to.cork();
    setImmediate(() => to.uncork());
  }
  to.write(piece);
}
