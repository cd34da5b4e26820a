// Upgrades that a secondary passes on to the primary. Example: a host opens its link, and its connection leads to a secondary.
//
//   1. The head of the upgrade goes to the primary (`primary-requests.ts`).
//   2. The answer must show the word that only the primary can open (`peers.ts`). It goes to the client without that word.
//   3. If the primary has agreed (101), bytes go both ways unread until one side ends. Otherwise the connection of the client ends with the answer.
//   4. The connection counts against the address of the client until the primary has certainly authenticated the client (PROVEN_MS).
//
// If no answer comes, or another server answers, the client gets the refusal of `unserved.ts`.
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import type { ServiceError } from '../../../shared/errors.ts';
import { LINK_HELLO_MS_MAX, TCP_KEEP_ALIVE_MS } from '../../../shared/limits.ts';
import { endToEnd, pairs, type RawHeaders } from './hop-headers.ts';
import { isOpened, OPENED, type Peer } from './peers.ts';
import type { PrimaryRequests } from './primary-requests.ts';
import { writeHead } from './relaying.ts';
import type { RefusalAfter } from './unserved.ts';

export interface PassedUpgrade {
  request: IncomingMessage;
  socket: Duplex;
  head: Buffer;
  /** The client's address as this control plane believes it. */
  clientIp: string;
  /** Called once the primary has certainly authenticated the caller. */
  proven(): void;
  /** Answers the caller, and closes its connection. */
  refuse(refusal: ServiceError): void;
}

export interface PassedUpgrades {
  pass(to: Peer, upgrade: PassedUpgrade): void;
  /** Closes all connections. */
  cut(): void;
}

interface Deps {
  clock: Clock;
  requests: Pick<PrimaryRequests, 'sendUpgrade'>;
  refusalAfter: RefusalAfter;
}

/** The primary closes a connection that has not proven itself in this time after its upgrade. A part of it may be spent on the way. */
const PROVEN_MS = 2 * LINK_HELLO_MS_MAX;
/** The primary answers an upgrade at once. One whose machine hangs never does, and we would not notice that the client leaves meanwhile. */
const ANSWER_MS_MAX = 15_000;
/** The last bytes of a side that has ended must reach the other one in this time. */
const LAST_MS_MAX = 5_000;

export function openPassedUpgrades({ clock, requests, refusalAfter }: Deps): PassedUpgrades {
  const open = new Set<Duplex>();

  const pass: PassedUpgrades['pass'] = (to, { request, socket, head, clientIp, proven, refuse }) => {
    keepIn(open, socket);
    const { outgoing, question } = requests.sendUpgrade({ request, to, clientIp });
    const giveUp = (): void => void outgoing.destroy();
    let isAnswered = false;
    const refuseOther = (): void => {
      outgoing.destroy();
      refuse(refusalAfter('not_the_primary', { clientIp, to }));
    };
    socket.once('close', giveUp);
    const cancel = clock.after(ANSWER_MS_MAX, () => {
      if (!isAnswered) outgoing.destroy(new Error(`it does not answer an upgrade within ${ANSWER_MS_MAX} ms`));
    });
    outgoing.once('close', cancel);
    outgoing.once('response', (answer) => {
      isAnswered = true;
      if (!isOpened(answer.headers, question)) return refuseOther();
      // The connection ends with the answer: the primary has not agreed, and what follows would go past its checks.
      writeHead(socket, statusLine(answer), [...endToEnd(answer.rawHeaders, [OPENED]), 'Connection', 'close']);
      // The network would discard the answer if something of the client was unread at the close.
      socket.resume();
      relay(answer, socket, clock);
    });
    outgoing.once('upgrade', (answer, stream: Socket, rest) => {
      isAnswered = true;
      socket.off('close', giveUp);
      if (!isOpened(answer.headers, question)) {
        stream.destroy();
        return refuseOther();
      }
      request.socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
      writeHead(socket, statusLine(answer), withoutWord(answer.rawHeaders));
      socket.write(rest);
      stream.write(head);
      join(socket, stream, clock);
      socket.once('close', clock.after(PROVEN_MS, proven));
    });
    outgoing.on('error', (error) => {
      if (socket.destroyed) return;
      if (isAnswered) return void socket.destroy();
      refuse(refusalAfter(error, { clientIp, to }));
    });
    outgoing.end();
  };
  return {
    pass,
    cut: () => {
      for (const socket of open) socket.destroy();
    },
  };
}

/** Outside of the function that has the request, because V8 would keep the request in memory for as long as this listener. */
function keepIn(open: Set<Duplex>, socket: Duplex): void {
  open.add(socket);
  socket.once('close', () => open.delete(socket));
}

function join(socket: Duplex, stream: Socket, clock: Clock): void {
  if (socket.destroyed) return void stream.destroy();
  stream.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
  stream.on('error', () => stream.destroy());
  relay(socket, stream, clock);
  relay(stream, socket, clock);
  // The end of one side ends both, because the other side may never close.
  for (const side of [socket, stream]) side.once('finish', () => side.destroy());
}

/** Relays one direction. After the end of `from`, `to` gets the last bytes if it takes them soon. */
function relay(from: IncomingMessage | Duplex, to: Duplex, clock: Clock): void {
  from.pipe(to);
  from.once('end', () => {
    const cancel = clock.after(LAST_MS_MAX, () => to.destroy());
    to.once('close', cancel);
  });
  from.once('close', () => void (from.readableEnded || to.destroy()));
}

function withoutWord(headers: RawHeaders): RawHeaders {
  return pairs(headers)
    .filter(([name]) => name.toLowerCase() !== OPENED)
    .flat();
}

function statusLine({ statusCode, statusMessage }: IncomingMessage): string {
  return `HTTP/1.1 ${statusCode} ${statusMessage}`;
}
