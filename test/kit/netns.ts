// A private network namespace with nothing but a loopback interface: what runs there shares no bridge, route or firewall rule
// with the machine. Single TCP ports of the machine's loopback can be let through.
import { createServer, connect, type Socket } from 'node:net';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { startProgram } from './processes.ts';
import { requireProgram } from './setup.ts';

export interface Namespace {
  /** The command line that runs `argv` inside. */
  inside(argv: readonly string[]): [string, ...string[]];
  /** Inside, 127.0.0.1:port reaches 127.0.0.1:port of the machine. Resolves when it does; asking twice is fine. */
  letThrough(port: number): Promise<void>;
  stop(): Promise<void>;
}

/** `dir` takes the unix socket that crosses the border. Needs root. The namespace ends with its keeper, or with this process. */
export async function openNamespace(dir: string): Promise<Namespace> {
  const socketPath = join(dir, 'border.sock');
  const border = createServer({ allowHalfOpen: true }, guideThrough).listen(socketPath);
  await once(border, 'listening');
  const keeperPath = join(import.meta.dirname, 'netns-keeper.ts');
  const keeper = startProgram({
    command: 'unshare',
    args: ['--net', '--', process.execPath, keeperPath, requireProgram('busybox'), socketPath],
    stdin: 'pipe',
  });
  await keeper.waitForOutput(/^ready$/m);
  const open = new Set<number>();
  return {
    inside: (argv) => ['nsenter', `--net=/proc/${keeper.pid}/ns/net`, '--', ...argv],
    letThrough: async (port) => {
      if (open.has(port)) return;
      open.add(port);
      keeper.write(`${port}\n`);
      await keeper.waitForOutput(new RegExp(`^open ${port}$`, 'm'));
    },
    stop: async () => {
      await keeper.stop('SIGKILL');
      border.close();
      rmSync(socketPath, { force: true });
    },
  };
}

/** A connection from inside begins with a line that holds the port it wants. */
function guideThrough(from: Socket): void {
  from.on('error', () => from.destroy());
  from.once('readable', () => {
    const head = from.read(6) as Buffer | null;
    if (head === null) {
      from.destroy();
      return;
    }
    const to = connect({ host: '127.0.0.1', port: Number(head.toString()), allowHalfOpen: true, noDelay: true });
    to.on('error', () => from.destroy());
    from.on('error', () => to.destroy());
    from.pipe(to).pipe(from);
  });
}
