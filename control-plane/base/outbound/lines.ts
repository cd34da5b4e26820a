// Keep-alive connections: each serves one request at a time, and is replaced when it is lost.
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { callbackify } from 'node:util';
import { Client, errors } from 'undici';
import { type ConnectionDeps, openConnection } from './connection.ts';
import { OutboundError, type Target } from './policy.ts';
import { messageOf } from '../../../shared/errors.ts';
import { openRing } from '../../../shared/ring.ts';

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
  /** True while it is kept for a next request. */
  isIdle: boolean;
  /** Takes it out of the list that it is in. */
  leave: () => void;
  /** The address that the newest connection reached. */
  remoteAddress: string | null;
  /** The reason if we ended the connection. */
  endedBy: OutboundError | null;
  /** Called during a request as soon as there is a connection to send it on. */
  onConnected: () => void;
  /** Ends the line in any state. */
  end(reason: OutboundError): void;
}

/** Opens a connection to a server that has no address. */
export type Dial = () => Promise<Duplex>;

export interface Lines {
  /** A kept line to the origin, or a new one, which `dial` connects if it is given. */
  take(target: Target, dial?: Dial): Line;
  /** Keeps the line for the next request to its origin, if it still has a connection. */
  giveBack(line: Line): void;
  close(): Promise<void>;
}

export function openLines(deps: ConnectionDeps): Lines {
  const busy = openRing<Line>();
  const idle = openRing<Line>();
  const idleOf = new Map<string, Line[]>();
  /** The reason why a line ends that nobody uses. Each new error would note where it was made, which costs more than the rest of the end. */
  const unused = closing();
  const remove = (line: Line): void => {
    if (!line.isIdle) return;
    line.isIdle = false;
    line.leave();
    const others = idleOf.get(line.origin)?.filter((other) => other !== line) ?? [];
    if (others.length === 0) idleOf.delete(line.origin);
    else idleOf.set(line.origin, others);
  };
  return {
    take: (target, dial) => {
      const same = idleOf.get(target.origin) ?? [];
      const kept = same.pop();
      if (same.length === 0) idleOf.delete(target.origin);
      const line = kept ?? newLine(target, dial ?? ((signal) => openConnection(target, deps, signal)), remove);
      line.isIdle = false;
      line.leave();
      line.leave = busy.add(line);
      return line;
    },
    giveBack: (line) => {
      line.onConnected = doNothing;
      line.leave();
      if (!line.isOpen || line.endedBy !== null) return;
      line.isIdle = true;
      line.leave = idle.add(line);
      const same = idleOf.get(line.origin);
      if (same === undefined) idleOf.set(line.origin, [line]);
      else same.push(line);
      if (idle.size > IDLE_LINES_MAX) idle.oldest()?.end(unused);
    },
    close: async () => {
      const all = [...busy.list(), ...idle.list()];
      for (const line of all) line.end(closing());
      await Promise.all(all.map(({ client }) => client.destroy()));
    },
  };
}

/**
 * Calls `act` for each connection that the line gets during its request, and at once if it has one. A caller does not write its function into the
 * property itself: V8 would put that function among its old objects, and the function would keep its whole request until the next full collection.
 */
export function whenConnected(line: Line, act: () => void): void {
  line.onConnected = act;
  if (line.isOpen) act();
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

type Connect = (signal: AbortSignal) => Promise<Duplex & { remoteAddress?: string | undefined }>;

function newLine(target: Target, connect: Connect, onGone: (line: Line) => void): Line {
  const ending = new AbortController();
  const connectThen = callbackify(async (): Promise<Socket> => {
    const socket = await connect(ending.signal).catch((error: unknown) => {
      throw error instanceof OutboundError ? error : new OutboundError('connect', messageOf(error), { cause: error });
    });
    if (ending.signal.aborted) socket.destroy();
    line.remoteAddress = socket.remoteAddress ?? null;
    line.isOpen = true;
    line.onConnected();
    // undici uses nothing of a socket that other streams do not have.
    return socket as Socket;
  });
  const client = new Client(target.origin, {
    connect: (_options, callback) =>
      connectThen((error, socket) => (error ? callback(error, null) : callback(null, socket))),
  });
  const line: Line = {
    origin: target.origin,
    client,
    isOpen: false,
    isIdle: false,
    leave: doNothing,
    remoteAddress: null,
    endedBy: null,
    onConnected: doNothing,
    end: (reason) => {
      line.endedBy ??= reason;
      onGone(line);
      ending.abort(reason);
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

/** A function made during a request would keep all of that request in memory for as long as the line is kept. */
function doNothing(): void {}

function closing(): OutboundError {
  return new OutboundError('connect', 'the connection was closed');
}
