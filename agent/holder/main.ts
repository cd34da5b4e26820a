// The holder: one process per workload on the host. It is the workload's SSH server and dials its own data streams. So a restart of
// the supervisor drops no session, and a tenant can overload only the holder of its own workload.
import { createServer, type Socket } from 'node:net';
import { open, writeFile } from 'node:fs/promises';
import { flushCompileCache } from 'node:module';
import { basename } from 'node:path';
import { systemClock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog, type Log, lossyDestination } from '../../shared/log.ts';
import { startLoop } from '../../shared/loop.ts';
import { systemRng } from '../../shared/rng.ts';
import { becomeUser, userOf } from '../host/confinement.ts';
import { removePath } from '../host/state.ts';
import { hasListener } from '../host/status-socket.ts';
import { dialStream } from '../wire/dial.ts';
import { workloadPaths, openRunFolderToUser } from '../wire/workload-folder.ts';
import { listenAt, openGuests } from './guest-connection.ts';
import { sendJson } from '../wire/frames.ts';
import type { HolderReport } from '../wire/holder-messages.ts';
import { loadHostKey } from './host-key.ts';
import { openSshServer, type SshServer } from './ssh-server.ts';
import { type OpenRequest, serveSupervisor } from './supervisor.ts';
import { openTcpServer, type TcpServer } from './tcp-target.ts';
import { openTerminalServer, type TerminalServer } from './terminal-target.ts';
import { fstatSync, ftruncateSync } from 'node:fs';
import type { DestinationStream } from 'pino';

/** A holder ends when its workload's folder is gone, because the order to end may have been lost. */
const FOLDER_CHECK_MS = 60_000;

/**
 * Runs until the workload is over. `folder` is the folder of the workload; `pageFolder` contains the console's page. Ends at once if another
 * holder answers already.
 */
export async function runHolder(folder: string, pageFolder: string): Promise<void> {
  const paths = workloadPaths(folder);
  if (await hasListener(paths.holderSocket)) return process.exit(0);
  const clock = systemClock();
  const log = createLog('holder', 'info', boundedLog(process.stdout.fd));
  const ids = createIds(clock, systemRng());
  const hostKey = await loadHostKey(paths.hostKey);
  await removePath(paths.holderSocket);
  await removePath(paths.guestSocket);
  await storeProcessId(paths.holderPid, log);

  const supervisors = new Set<Socket>();
  const status = (): HolderReport => ({
    kind: 'status',
    host_key: hostKey.publicLine,
    guest: guests.connected(),
    main_exit: guests.mainExit(),
  });
  const guests = await openGuests(paths.guestSocket, {
    clock,
    ids,
    log,
    onChange: () => {
      for (const socket of supervisors) sendJson(socket, status());
    },
  });
  await openRunFolderToUser(folder);
  const servers: HolderServers = {
    ssh: openSshServer({ clock, log, guests, hostKey: hostKey.privateKey }),
    tcp: openTcpServer({ guests, clock }),
    terminal: openTerminalServer({ clock, ids, guests, folder: pageFolder }),
  };
  const leave = (reason: string): void => {
    log.info({ reason }, 'the holder ends');
    process.exit(0);
  };

  const server = createServer((socket) => {
    supervisors.add(socket);
    socket.on('error', () => socket.destroy());
    socket.once('close', () => supervisors.delete(socket));
    sendJson(socket, status());
    void serveSupervisor(socket, {
      log,
      exit: () => leave('the workload is over'),
      open: (word, tell) => void openStream(word, servers, tell),
    });
  });
  // The folder stays open, because this process soon loses the right to read the folders above.
  const run = await open(paths.run);
  await listenAt(paths.holderSocket, server, { clock, log });
  const checkFolder = async (): Promise<void> => {
    if ((await run.stat()).nlink === 0) leave("the workload's folder is gone");
  };
  // The compile cache is for the next holder, and only root may write it. From `becomeUser` on, this process is not root.
  flushCompileCache();
  becomeUser(userOf(basename(folder)));
  startLoop({ name: 'folder', periodMs: FOLDER_CHECK_MS, run: checkFolder }, { clock, log });
  log.info({ folder }, 'the holder serves');
}

/** Never rejects: on a full disk, which another tenant may have filled, the rental must stay reachable. */
async function storeProcessId(file: string, log: Log): Promise<void> {
  try {
    await writeFile(file, String(process.pid));
  } catch (error) {
    log.error({ err: error }, 'the process id could not be stored: the agent cannot kill this holder if it hangs');
  }
}

const LOG_BYTES_MAX = 1024 * 1024;

/**
 * Writes lines to the open file `fd`, and empties it before it grows beyond LOG_BYTES_MAX, because a client of the workload can cause any number
 * of lines. A line that cannot be written is lost.
 */
export function boundedLog(fd: number): DestinationStream {
  const lines = lossyDestination(fd);
  return {
    write: (line) => {
      const file = fstatSync(fd);
      if (file.isFile() && file.size + Buffer.byteLength(line) > LOG_BYTES_MAX) ftruncateSync(fd);
      lines.write(line);
    },
  };
}

interface HolderServers {
  ssh: SshServer;
  tcp: TcpServer;
  terminal: TerminalServer;
}

async function openStream(
  word: OpenRequest,
  servers: HolderServers,
  tell: (news: HolderReport) => void,
): Promise<void> {
  try {
    await serveStream(word, servers);
    tell({ kind: 'opened', stream_id: word.stream_id });
  } catch (error) {
    tell({ kind: 'refused', stream_id: word.stream_id, detail: messageOf(error).slice(0, 400) });
  }
}

async function serveStream(word: OpenRequest, servers: HolderServers): Promise<void> {
  const { target } = word;
  if (target.kind === 'tcp') return servers.tcp.serve(target.port, () => dialStream(word));
  const stream = await dialStream(word);
  try {
    if (target.kind === 'ssh') servers.ssh.serve(stream, target);
    else if (target.kind === 'probe') servers.ssh.serveProbe(stream, target);
    else servers.terminal.serve(stream);
  } catch (error) {
    stream.destroy();
    throw error;
  }
}
