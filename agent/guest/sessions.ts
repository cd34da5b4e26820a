// Sessions inside the container: a command, a shell on a terminal, SFTP, or a TCP connection. Each has its own connection to the holder.
import { spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import type { Clock } from '../../shared/clock.ts';
import { SESSION_LINGER_MS } from '../../shared/limits.ts';
import { canEnter, readAccount, type Account } from './account.ts';
import { carry, dial, feed, pump, type Listeners } from './connections.ts';
import { FRAME, sendJson } from '../wire/frames.ts';
import { serveSftp } from './sftp.ts';
import { loadPty, openTerminal, type Terminal } from './pty.ts';
import type { Exit, SessionMessage, SessionRequest } from '../wire/guest-messages.ts';

export interface GuestSession extends Controls {
  /** Ends the session, because the holder has left. The session's own socket may not show that while a program does not read its input. */
  cut(): void;
}

interface Controls {
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

const NO_CONTROLS: Controls = { resize: () => {}, signal: () => {} };
const NO_SHELL = "this image has no shell: neither the user's login shell, bash nor sh is there";

/** Serves one request on `socket`. `onEnd` is called once at the end. If the holder disconnects, the program gets a hang-up. */
export function startSession(
  socket: Socket,
  request: SessionRequest,
  deps: SessionDeps,
  onEnd: () => void,
): GuestSession {
  // Without half-open sockets, the socket would close at the holder's EOF, before the program has read all of its input.
  socket.allowHalfOpen = true;
  socket.once('close', onEnd);
  socket.on('error', () => socket.destroy());
  return { ...begin(socket, request, deps), cut: () => socket.destroy() };
}

function begin(socket: Socket, request: SessionRequest, deps: SessionDeps): Controls {
  try {
    return serve(socket, request, deps);
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error);
    tell(socket, { kind: 'failed', detail });
    socket.resume();
    socket.end();
    return NO_CONTROLS;
  }
}

function serve(socket: Socket, request: SessionRequest, deps: SessionDeps): Controls {
  const { clock, listeners } = deps;
  switch (request.kind) {
    case 'dial':
      dial(socket, request, clock);
      return NO_CONTROLS;
    case 'take': {
      const target = listeners.take(request.connection);
      if (target === undefined) throw new Error('the connection is gone');
      carry(socket, target, clock);
      return NO_CONTROLS;
    }
    case 'listen':
      listeners.listen(socket, request.port);
      return NO_CONTROLS;
    case 'listen_agent':
      listeners.listenAgent(socket);
      return NO_CONTROLS;
    case 'sftp':
      return sftp(socket, { ...deps, account: ownAccount() });
    case 'exec': {
      const account = ownAccount();
      if (account.shell === null) throw new Error(NO_SHELL);
      const start = request.pty === null ? startPlain : startTerminal;
      return start(socket, request, { ...deps, account, argv: shellArgv(account.shell, request.command) });
    }
    default:
      // A holder is replaced by a newer one, and a guest stays as old as its container.
      throw new Error('the helper inside the container is too old for this');
  }
}

function ownAccount(): Account {
  return readAccount(process.getuid?.() ?? 0);
}

interface AccountDeps extends SessionDeps {
  account: Account;
}

interface ProgramDeps extends AccountDeps {
  argv: [string, ...string[]];
}

function startPlain(socket: Socket, request: ExecRequest, deps: ProgramDeps): Controls {
  const [file, ...args] = deps.argv;
  const { cwd, env } = surroundings(deps, request.env);
  // The program gets its own process group, so that a signal reaches the whole pipeline.
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
  // A program that ignores SIGHUP (nohup) goes on. sshd does the same if a terminal hangs up.
  const hangUp = (): void => {
    signalGroup('SIGHUP');
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream.destroy();
  };
  socket.once('close', () => {
    const { writableEnded: hasAllInput, writableFinished: hasReadAll, closed } = child.stdin;
    if (!hasAllInput || hasReadAll || closed) return hangUp();
    // The client has sent its last byte and has left. The program gets some time to read what is still on the way.
    const giveUp = deps.clock.after(SESSION_LINGER_MS, hangUp);
    child.stdin.once('close', giveUp).once('close', hangUp);
  });
  return { resize: () => {}, signal: (name) => signalGroup(`SIG${name}`) };
}

function startTerminal(socket: Socket, request: ExecRequest, deps: ProgramDeps): Controls {
  if (request.pty === null) throw new Error('a terminal session needs a terminal');
  const { cwd, env } = surroundings(deps, { ...localeFor({ ...deps.env, ...request.env }), ...request.env });
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
  // The end of the client's input does not end a terminal. sshd does the same.
  void feed(socket, terminal.stream, () => {});
  socket.once('close', () => terminal.close());
  return {
    resize: (cols, rows) => terminal.resize(cols, rows),
    signal: (name) => killQuietly(-terminal.pid, `SIG${name}`),
  };
}

function sftp(socket: Socket, deps: AccountDeps): Controls {
  tell(socket, { kind: 'started' });
  void serveSftp(socket, surroundings(deps, {}).cwd).then(
    () => {
      tell(socket, { kind: 'exit', exit: { code: 0, signal: null } });
      socket.end();
    },
    () => socket.destroy(),
  );
  return NO_CONTROLS;
}

function tell(socket: Socket, news: SessionMessage): void {
  if (socket.writable) sendJson(socket, news);
}

/** A command runs in the user's shell, as in sshd. If there is no command, it is a login shell. */
function shellArgv(shell: string, command: string | null): [string, ...string[]] {
  const argv: [string, ...string[]] = shell.endsWith('/busybox') ? [shell, 'sh'] : [shell];
  return command === null ? [...argv, '-l'] : [...argv, '-c', command];
}

/** Sets a UTF-8 locale if there is none. Without one, a shell counts a letter beyond ASCII as several and edits the line wrongly. */
function localeFor(env: Record<string, string>): Record<string, string> {
  const isSaid = ['LC_ALL', 'LC_CTYPE', 'LANG'].some((name) => env[name] !== undefined && env[name] !== '');
  return isSaid ? {} : { LANG: 'C.UTF-8' };
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
  return { env, cwd: home !== '/' && canEnter(home) ? home : ownFolder() };
}

/** The folder of the image. It may belong to another user, or be gone. A program can start in neither. */
function ownFolder(): string {
  try {
    const folder = process.cwd();
    return canEnter(folder) ? folder : '/';
  } catch {
    return '/';
  }
}

function killQuietly(pid: number, signal: string): void {
  try {
    process.kill(pid, signal);
  } catch {
    // The process has ended, or this system does not have the signal.
  }
}
