// A mail server that takes mails and keeps them, or refuses every recipient. It speaks as much SMTP (RFC 5321) as a client needs.
import { createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';

export interface SmtpServer {
  port: number;
  /** Each as it was sent, with its envelope. */
  mails: { from: string; to: string; text: string }[];
  /** The most connections that were open at the same time. */
  most(): number;
  /** From now on, the server takes mails only when what this returns is called. */
  hold(): () => void;
  /** The server refuses or takes every mail from now on. */
  refuse(isRefusing: boolean): void;
  close(): Promise<void>;
}

export async function startSmtpServer(): Promise<SmtpServer> {
  const mails: SmtpServer['mails'] = [];
  const sockets = new Set<Socket>();
  let isRefusing = false;
  let most = 0;
  let held = Promise.resolve();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    most = Math.max(most, sockets.size);
    let [from, to] = ['', ''];
    let lines: string[] | undefined;
    const say = (text: string): void => void socket.write(`${text}\r\n`);
    say('220 test');
    createInterface({ input: socket }).on('line', (line) => {
      if (lines !== undefined && line !== '.') return void lines.push(line);
      if (lines !== undefined) {
        mails.push({ from, to, text: lines.join('\n') });
        lines = undefined;
        return void held.then(() => say('250 taken'));
      }
      const word = line.slice(0, 4).toUpperCase();
      if (word === 'MAIL') from = line;
      if (word === 'RCPT') to = line;
      if (word === 'RCPT' && isRefusing) return say(`550 no such person: ${to.slice('RCPT TO:'.length)}`);
      if (word === 'DATA') lines = [];
      say(word === 'DATA' ? '354 go on' : word === 'QUIT' ? '221 bye' : '250 ok');
      if (word === 'QUIT') socket.end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    mails,
    most: () => most,
    hold: () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      held = promise;
      return resolve;
    },
    refuse: (next) => (isRefusing = next),
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}
