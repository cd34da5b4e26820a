// Keep-alive connections: each serves one request at a time, and is replaced when it is lost.
import type { Socket } from 'node:net';
import { callbackify } from 'node:util';
import { Client, errors } from 'undici';
import { type ConnectionDeps, openConnection } from './connection.ts';
import { OutboundError } from './outbound-error.ts';
import type { Target } from './policy.ts';
import { messageOf } from '../../../shared/errors.ts';

/** Limit of idle connections to all hosts. The oldest one is closed first. */
const IDLE_LINES_MAX = 256;

/**
 * At most one connection, opened when a request needs it. It serves one request at a time, so the address that each request reached is
 * known.
 */
export interface Line {
  origin: string;
  client: Client;
  isOpen: boolean;
  /** The address that the newest connection reached. */
  remoteAddress: string | null;
  /** The reason if we ended the connection. */
  endedBy: OutboundError | null;
  /** Called during a request as soon as there is a connection to send it on. */
  onConnected: () => void;
  /** Ends the line in any state. */
  end(reason: OutboundError): void;
}

export interface Lines {
  take(target: Target): Line;
  /** Keeps the line for the next request to its origin, if it still has a connection. */
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

/** The response headers as undici returns them, in our form. Repeated headers are joined with a comma. */
export function joined(headers: Record<string, string | string[] | undefined>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, Array.isArray(value) ? value.join(', ') : (value ?? '')]),
  );
}

/** An error that no check has named: the open connection broke, or the response was not HTTP. */
export function outboundError(error: unknown, line: Line): OutboundError {
  if (error instanceof OutboundError) return error;
  const broke = error instanceof errors.SocketError || (error instanceof Error && 'syscall' in error);
  const what = broke ? 'the connection ended before the answer was whole' : 'the answer is not valid HTTP';
  return new OutboundError('protocol', `${what}: ${messageOf(error)}`, {
    remoteAddress: line.remoteAddress,
    cause: error,
  });
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
  // A request that was not sent yet uses a new connection, for which the name is resolved and checked again.
  client.on('disconnect', () => {
    line.isOpen = false;
    onGone(line);
  });
  return line;
}

function closing(): OutboundError {
  return new OutboundError('connect', 'the connection was closed');
}
