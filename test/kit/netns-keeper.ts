// Keeps a network namespace alive (see netns.ts) and carries chosen ports out of it over a unix socket.
// Usage: netns-keeper.ts <busybox> <socket>; each line on stdin is a port to open inside. Ends with its stdin.
import { spawnSync } from 'node:child_process';
import { createServer, connect } from 'node:net';
import { createInterface } from 'node:readline';

const [, , busybox = '', socketPath = ''] = process.argv;
const up = spawnSync(busybox, ['ip', 'link', 'set', 'lo', 'up'], { encoding: 'utf8' });
if (up.status !== 0) throw new Error(`the loopback interface did not come up: ${up.stderr}`);

createInterface({ input: process.stdin })
  .on('line', (line) => openPort(Number(line)))
  .on('close', () => process.exit(0));
console.log('ready');

function openPort(port: number): void {
  createServer({ allowHalfOpen: true, noDelay: true }, (inner) => {
    const outer = connect({ path: socketPath, allowHalfOpen: true });
    outer.on('error', () => inner.destroy());
    inner.on('error', () => outer.destroy());
    outer.write(`${port}\n`.padStart(6, '0'));
    inner.pipe(outer).pipe(inner);
  }).listen(port, '127.0.0.1', () => console.log(`open ${port}`));
}
