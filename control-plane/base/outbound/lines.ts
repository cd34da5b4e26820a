// Kept-alive connections: taken for one request at a time, given back, replaced when they are gone.
import type { Socket } from 'node:net';
import { callbackify } from 'node:util';
import { Client } from 'undici';
import { type ConnectionDeps, openConnection } from './connection.ts';
import { OutboundError } from './outbound-error.ts';
import type { Target } from './policy.ts';

/** Idle connections over all hosts; the oldest makes room. */
const IDLE_LINES_MAX = 256;

/** One connection at most, opened when a request needs it. It serves one request at a time, so we know whom each one reached. */
export interface Line {
  origin: string;
  client: Client;
  isOpen: boolean;
  /** Whom the newest connection reached. */
  remoteAddress: string | null;
  /** Why it was ended by us. */
  endedBy: OutboundError | null;
  /** Set while a request runs: told once there is a connection to send it on. */
  onConnected: () => void;
  /** Ends the line wherever it is in its life. */
  end(reason: OutboundError): void;
}

export interface Lines {
  take(target: Target): Line;
  /** Keeps the line for the next request to its origin, where it still has a connection. */
  giveBack(line: Line): void;
  close(): Promise<void>;
}

export function openLines(deps: ConnectionDeps): Lines {
  const busy = new Set<Line>();
  const idle = new Set<Line>();
  return {
    take: (target) => {
      const kept = [...idle].findLast(({ origin }) => origin === target.origin);
      const line = kept ?? newLine(target, deps, (gone) => void idle.delete(gone));
      idle.delete(line);
      busy.add(line);
      return line;
    },
    giveBack: (line) => {
      busy.delete(line);
      if (!line.isOpen || line.endedBy !== null) return;
      idle.add(line);
      const [oldest] = idle;
      if (idle.size > IDLE_LINES_MAX) oldest?.end(closing());
    },
    close: async () => {
      const all = [...busy, ...idle];
      for (const line of all) line.end(closing());
      await Promise.all(all.map(({ client }) => client.destroy()));
    },
  };
}

function newLine(target: Target, deps: ConnectionDeps, onGone: (line: Line) => void): Line {
  const ending = new AbortController();
  const connectThen = callbackify(async (): Promise<Socket> => {
    const socket = await openConnection(target, deps, ending.signal);
    line.remoteAddress = socket.remoteAddress ?? null;
    line.isOpen = true;
    line.onConnected();
    return socket;
  });
  const client = new Client(target.origin, {
    connect: (_options, callback) =>
      connectThen((error, socket) => (error ? callback(error, null) : callback(null, socket))),
  });
  const line: Line = {
    origin: target.origin,
    client,
    isOpen: false,
    remoteAddress: null,
    endedBy: null,
    onConnected: () => undefined,
    end: (reason) => {
      line.endedBy ??= reason;
      onGone(line);
      ending.abort();
      void client.destroy(reason);
    },
  };
  // A request that was not yet sent by then goes over a new connection, for which the name is judged anew.
  client.on('disconnect', () => {
    line.isOpen = false;
    onGone(line);
  });
  return line;
}

function closing(): OutboundError {
  return new OutboundError('connect', 'the connection was closed');
}
