// Serves the browser console over data streams: its page, and one WebSocket for each page that shows a terminal.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { WebSocketServer, type WebSocket } from 'ws';
import { z } from 'zod';
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Ids } from '../../shared/ids.ts';
import { isMissing } from '../host/state.ts';
import type { Guests } from './guest-connection.ts';
import { type TerminalSession, type Viewer, openTerminals, type Terminals } from './terminals.ts';
import { TERMINAL_CLOSE, type TerminalMessage, PageMessage } from './terminal-messages.ts';

export interface TerminalServer {
  /** Serves HTTP on the stream. Throws if there are too many connections already. */
  serve(stream: Duplex): void;
}

interface TerminalServerDeps {
  clock: Clock;
  ids: Ids;
  guests: Guests;
  /** Folder with `index.html`, `page.js` and `page.css`. */
  folder: string;
}

const CONNECTIONS_MAX = 64;
/** A page sends typed or pasted text in pieces of 16 KiB, so this is enough. */
const MESSAGE_BYTES_MAX = 64 * 1024;
/** Proxies end connections that are idle for a minute. A page that does not answer a ping is gone. */
const PING_MS = 25_000;

const FILES: Readonly<Record<string, [file: string, type: string]>> = {
  '/': ['index.html', 'text/html'],
  '/page.js': ['page.js', 'text/javascript'],
  '/page.css': ['page.css', 'text/css'],
};
const HEADERS = {
  // xterm.js creates style elements, and the page's empty icon is a data URL.
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; frame-ancestors 'none'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cache-Control': 'no-cache',
};

const SessionQuery = z.object({
  session: z.string().max(64).default(''),
  place: z.coerce.number().int().min(0).default(0),
  cols: z.coerce.number().int().min(1).max(1000).default(80),
  rows: z.coerce.number().int().min(1).max(1000).default(24),
});
type SessionQuery = z.infer<typeof SessionQuery>;

export function openTerminalServer(deps: TerminalServerDeps): TerminalServer {
  const terminals = openTerminals(deps);
  const sockets = new WebSocketServer({ noServer: true, maxPayload: MESSAGE_BYTES_MAX, perMessageDeflate: false });
  const open = new Set<Duplex>();
  const files = readFiles(deps.folder);
  const server = createServer((request, response) => sendFile(request, response, files));
  server.on('upgrade', (request: IncomingMessage, stream: Duplex, head: Buffer) => {
    const query = readQuery(request);
    if (query === undefined) return void stream.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n');
    sockets.handleUpgrade(request, stream, head, (socket) => {
      // A page may break the protocol before its shell has started, and an error without a listener would end the holder.
      socket.on('error', () => socket.terminate());
      pingUntilClosed(socket, deps.clock);
      void showTerminal(socket, query, terminals);
    });
  });
  return {
    serve: (stream) => {
      if (open.size >= CONNECTIONS_MAX) throw new Error('too many connections to the console of this instance');
      open.add(stream);
      stream.on('error', () => stream.destroy());
      stream.once('close', () => open.delete(stream));
      server.emit('connection', stream);
    },
  };
}

type Files = ReadonlyMap<string, Buffer>;

/** Reads the files now, because the holder soon runs as another user. A missing file is answered with 500. */
function readFiles(folder: string): Files {
  const files = new Map<string, Buffer>();
  for (const [file] of Object.values(FILES)) {
    try {
      files.set(file, readFileSync(join(folder, file)));
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
  }
  return files;
}

function sendFile({ method, url }: IncomingMessage, response: ServerResponse, files: Files): void {
  const [file, type] = FILES[pathOf(url)] ?? [];
  if (file === undefined || method !== 'GET') {
    response.writeHead(404, { 'Content-Type': 'text/plain' });
    return void response.end('There is nothing here.\n');
  }
  const bytes = files.get(file);
  response.writeHead(bytes === undefined ? 500 : 200, { ...HEADERS, 'Content-Type': `${type}; charset=utf-8` });
  response.end(bytes);
}

/** The parameters of a page's request; undefined if they are not like those that our page sends. */
function readQuery({ url = '' }: IncomingMessage): SessionQuery | undefined {
  if (pathOf(url) !== '/session') return undefined;
  return SessionQuery.safeParse(Object.fromEntries(new URLSearchParams(url.split('?')[1]))).data;
}

function pathOf(url = ''): string {
  return url.split('?', 1)[0] ?? '';
}

async function showTerminal(socket: WebSocket, query: SessionQuery, terminals: Terminals): Promise<void> {
  const say = (message: TerminalMessage): void => socket.send(JSON.stringify(message));
  const { cols, rows } = query;
  try {
    const { id, session } = await terminals.find(query.session, { cols, rows });
    if (socket.readyState !== socket.OPEN) return terminals.left(id);
    const viewer: Viewer = {
      begin: (at) => say({ kind: 'begin', session: id, ...at }),
      show: (bytes) => socket.send(bytes),
      taken: () => socket.close(TERMINAL_CLOSE.taken),
      ended: (exit) => {
        say({ kind: 'exit', code: exit?.code ?? null, signal: exit?.signal ?? null });
        socket.close(TERMINAL_CLOSE.ended);
      },
    };
    socket.once('close', () => {
      session.detach(viewer);
      terminals.left(id);
    });
    listen(socket, session, viewer);
    // The page of a new terminal has shown nothing yet.
    session.attach(viewer, id === query.session ? query.place : 0, { cols, rows });
  } catch (error) {
    say({ kind: 'failed', detail: messageOf(error) });
    socket.close(TERMINAL_CLOSE.ended);
  }
}

function listen(socket: WebSocket, session: TerminalSession, viewer: Viewer): void {
  socket.on('message', (data: Buffer, isBinary) => {
    if (isBinary) {
      socket.pause();
      return void session.type(data).then(() => socket.resume());
    }
    const message = readMessage(data.toString());
    if (message === undefined) return socket.terminate();
    if (message.kind === 'resize') session.resize(message);
    else session.shown(viewer, message.bytes);
  });
}

function readMessage(text: string): PageMessage | undefined {
  try {
    return PageMessage.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

function pingUntilClosed(socket: WebSocket, clock: Clock): void {
  let answered = true;
  let cancel = (): void => undefined;
  const ping = (): void => {
    if (!answered) return socket.terminate();
    answered = false;
    socket.ping();
    cancel = clock.after(PING_MS, ping);
  };
  cancel = clock.after(PING_MS, ping);
  socket.on('pong', () => (answered = true));
  socket.once('close', () => cancel());
}
