// Work for the requests of each connection, one after another. A client may send requests ahead of their answers. Without this, it could make us
// hold any number of connections to the primary.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** A request, and what is done for it. It is over when the response has closed. */
export interface Turn {
  request: Pick<IncomingMessage, 'socket'>;
  response: Pick<ServerResponse, 'once'>;
  /** Called at most once: when the turns before it on the connection are over, unless the connection has closed. */
  begin(): void;
}

/** Turns of a connection that may wait. Each costs memory. Browsers and proxies send no requests ahead. */
export const WAITING_MAX = 100;

/** The returned function closes the connection if too many turns wait on it. */
export function openOneByOne(): (turn: Turn) => void {
  /** The turns that wait on each connection; undefined if none is under way. */
  const waiting = new WeakMap<Socket, Turn[]>();

  const run = ({ request: { socket }, response, begin }: Turn): void => {
    if (socket.destroyed || socket.writableEnded) return void waiting.delete(socket);
    response.once('close', () => {
      const next = waiting.get(socket)?.shift();
      if (next === undefined) waiting.delete(socket);
      else run(next);
    });
    begin();
  };
  return (turn) => {
    const { socket } = turn.request;
    const before = waiting.get(socket);
    if (before === undefined) {
      waiting.set(socket, []);
      run(turn);
    } else if (before.length < WAITING_MAX) before.push(turn);
    else socket.destroy();
  };
}
