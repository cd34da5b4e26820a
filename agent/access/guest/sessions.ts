// Sessions inside the container: a command, a shell on a terminal, or a TCP connection, each on a connection of its own to the holder.
import { spawn } from 'node:child_process';
import { connect, type Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { isFolder, readAccount, type Account } from './account.ts';
import { eachFrame, FRAME, FRAME_BYTES_MAX, sendFrame, sendJson, type FrameType } from './frames.ts';
import { serveSftp } from './sftp.ts';
import type { Listeners } from './listeners.ts';
import { loadPty, openTerminal, type Terminal } from './pty.ts';
import type { Exit, SessionNews, SessionRequest } from './words.ts';

export interface GuestSession {
  resize(cols: number, rows: number): void;
  /** `name` without SIG, as SSH sends it. */
  signal(name: string): void;
}

export interface SessionDeps {
  clock: Clock;
  env: Record<string, string>;
  ptyModule: string;
  listeners: Listeners;
}

type ExecRequest = Extract<SessionRequest, { kind: 'exec' }>;

const NOTHING_TO_SAY: GuestSession = { resize: () => {}, signal: () => {} };
const NO_SHELL = "this image has no shell: neither the user's login shell, bash nor sh is there";

/** Serves one request on `socket`; `onEnd` is called once when it is over. A holder that goes away hangs up on the program. */
export function startSession(
  socket: Socket,
  request: SessionRequest,
  deps: SessionDeps,
  onEnd: () => void,
): GuestSession {
  socket.once('close', onEnd);
  socket.on('error', () => socket.destroy());
  try {
    if (request.kind === 'dial') return dial(socket, request);
    if (request.kind === 'take') return take(socket, deps.listeners.take(request.connection));
    if (request.kind === 'listen') {
      deps.listeners.listen(socket, request.port);
      return NOTHING_TO_SAY;
    }
    const account = readAccount(process.getuid?.() ?? 0);
    if (request.kind === 'sftp') return sftp(socket, { ...deps, account });
    if (account.shell === null) throw new Error(NO_SHELL);
    const start = request.pty === null ? startPlain : startTerminal;
    return start(socket, request, { ...deps, account, argv: shellArgv(account.shell, request.command) });
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error);
    tell(socket, { kind: 'failed', detail });
    socket.resume();
    socket.end();
    return NOTHING_TO_SAY;
  }
}

interface AccountDeps extends SessionDeps {
  account: Account;
}

interface ProgramDeps extends AccountDeps {
  argv: [string, ...string[]];
}

function startPlain(socket: Socket, request: ExecRequest, deps: ProgramDeps): GuestSession {
  const [file, ...args] = deps.argv;
  const { cwd, env } = surroundings(deps, request.env);
  // A process group of its own, so that a signal reaches the whole pipeline.
  const child = spawn(file, args, { cwd, env, detached: true, stdio: ['pipe', 'pipe', 'pipe'] });
  const signalGroup = (signal: string): void => {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    killQuietly(-child.pid, signal);
  };
  child.once('spawn', () => tell(socket, { kind: 'started' }));
  child.once('error', (error) => {
    tell(socket, { kind: 'failed', detail: error.message });
    socket.end();
  });
  pump(child.stdout, socket, FRAME.data);
  pump(child.stderr, socket, FRAME.stderr);
  child.once('close', (code, signal) => {
    tell(socket, { kind: 'exit', exit: { code, signal } });
    socket.end();
  });
  child.stdin.on('error', () => {});
  void feed(socket, child.stdin, () => child.stdin.end());
  // As sshd does where a terminal hangs up: what ignores SIGHUP (nohup) goes on.
  socket.once('close', () => {
    signalGroup('SIGHUP');
    child.stdout.destroy();
    child.stderr.destroy();
  });
  return { resize: () => {}, signal: (name) => signalGroup(`SIG${name}`) };
}

function startTerminal(socket: Socket, request: ExecRequest, deps: ProgramDeps): GuestSession {
  if (request.pty === null) throw new Error('a terminal session needs a terminal');
  const { cwd, env } = surroundings(deps, request.env);
  const terminal: Terminal = openTerminal(
    loadPty(deps.ptyModule),
    { argv: deps.argv, env, cwd, pty: request.pty },
    deps.clock,
  );
  tell(socket, { kind: 'started' });
  pump(terminal.stream, socket, FRAME.data);
  terminal.stream.resume();
  void terminal.exited.then((exit: Exit) => {
    tell(socket, { kind: 'exit', exit });
    socket.end();
  });
  // The end of the client's input does not end a terminal: sshd does not either.
  void feed(socket, terminal.stream, () => {});
  socket.once('close', () => terminal.close());
  return {
    resize: (cols, rows) => terminal.resize(cols, rows),
    signal: (name) => killQuietly(-terminal.pid, `SIG${name}`),
  };
}

function dial(socket: Socket, request: Extract<SessionRequest, { kind: 'dial' }>): GuestSession {
  const target = connect({ host: request.host, port: request.port, allowHalfOpen: true, noDelay: true });
  const failed = (error: Error): void => {
    tell(socket, { kind: 'failed', detail: error.message });
    socket.end();
  };
  target.once('error', failed);
  target.once('connect', () => {
    target.off('error', failed);
    carry(socket, target);
  });
  socket.once('close', () => target.destroy());
  return NOTHING_TO_SAY;
}

function take(socket: Socket, target: Socket | undefined): GuestSession {
  if (target === undefined) throw new Error('the connection is gone');
  socket.once('close', () => target.destroy());
  carry(socket, target);
  return NOTHING_TO_SAY;
}

/** A connection inside, from now on the session's own. */
function carry(socket: Socket, target: Socket): void {
  tell(socket, { kind: 'started' });
  target.once('end', () => sendFrame(socket, FRAME.eof, Buffer.alloc(0)));
  target.once('error', () => socket.destroy());
  target.once('close', () => socket.end());
  pump(target, socket, FRAME.data);
  void feed(socket, target, () => target.end());
  target.resume();
}

function sftp(socket: Socket, deps: AccountDeps): GuestSession {
  tell(socket, { kind: 'started' });
  void serveSftp(socket, surroundings(deps, {}).cwd).then(
    () => {
      tell(socket, { kind: 'exit', exit: { code: 0, signal: null } });
      socket.end();
    },
    () => socket.destroy(),
  );
  return NOTHING_TO_SAY;
}

function tell(socket: Socket, news: SessionNews): void {
  if (socket.writable) sendJson(socket, news);
}

/** Output to the holder; a holder that is slow to take it slows the source. */
function pump(source: Readable, socket: Socket, type: FrameType): void {
  source.on('data', (chunk: Buffer) => {
    let ready = false;
    sendFrame(socket, type, chunk, () => {
      ready = true;
      if (source.isPaused()) source.resume();
    });
    if (!ready) source.pause();
  });
}

/** Input from the holder; a program that is slow to take it slows the holder. */
async function feed(socket: Socket, sink: Writable, onEof: () => void): Promise<void> {
  const write = (payload: Buffer): Promise<void> | undefined => {
    if (sink.destroyed || !sink.writable || sink.write(payload)) return undefined;
    return new Promise((resolve) => {
      const done = (): void => {
        sink.off('drain', done);
        sink.off('close', done);
        resolve();
      };
      sink.once('drain', done);
      sink.once('close', done);
    });
  };
  await eachFrame(socket, FRAME_BYTES_MAX, ({ type, payload }) => {
    if (type === FRAME.eof) onEof();
    return type === FRAME.data ? write(payload) : undefined;
  }).catch(() => socket.destroy());
}

/** A command runs in the shell as sshd would run it; without one it is a login shell. */
function shellArgv(shell: string, command: string | null): [string, ...string[]] {
  const argv: [string, ...string[]] = shell.endsWith('/busybox') ? [shell, 'sh'] : [shell];
  return command === null ? [...argv, '-l'] : [...argv, '-c', command];
}

function surroundings(deps: AccountDeps, asked: Record<string, string>): { cwd: string; env: Record<string, string> } {
  const { account } = deps;
  const home = deps.env['HOME'] ?? account.home;
  const env = {
    HOME: home,
    USER: account.name,
    LOGNAME: account.name,
    SHELL: account.shell ?? '',
    ...deps.env,
    ...asked,
  };
  return { env, cwd: home !== '/' && isFolder(home) ? home : process.cwd() };
}

function killQuietly(pid: number, signal: string): void {
  try {
    process.kill(pid, signal);
  } catch {
    // Gone already, or a signal name that this system does not have.
  }
}
