// The status of a running agent: served over HTTP on a unix socket that only root can open, and shown by `svc-agent status` in a few lines.
// The socket is also the lock against a second agent.
import { once } from 'node:events';
import { createServer, type ServerResponse, request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, systemClock } from '../../shared/clock.ts';
import { codeOf } from '../../shared/errors.ts';
import type { LoopStatus } from '../../shared/loop.ts';
import type { GpuFault } from '../../shared/protocol/inventory.ts';
import { removePath } from './state.ts';
import { text } from 'node:stream/consumers';

/** A healthy agent answers within milliseconds. */
const STATUS_MS_MAX = 10_000;

/** What an operator sees of a running agent. */
export interface AgentStatus {
  version: string;
  machine_id: string;
  /** The control plane with which the host has enrolled. */
  url: string;
  link: LinkStatus;
  loops: LoopStatus[];
  gpus: number;
  /** Why the GPUs are not known; empty if they are. */
  gpu_error: string;
  /** GPUs that must not be rented, with reasons. */
  gpu_faults: GpuFault[];
  /** Version of the container engine; empty while the engine does not answer. */
  engine_version: string;
  /** Why the engine's list of our containers does not count now; empty if it does. */
  containers_doubt: string;
  network_fence: string;
  /** Why the network fence is not in force; empty if it is. */
  fence_error: string;
  /** Which limits of holders this host cannot enforce; empty if it enforces all. */
  holders_lack: string;
  /** Why the agent cannot store its state; empty if it can. */
  disk_error: string;
}

export interface LinkStatus {
  connected: boolean;
  /** Why the last connection ended; null before the first end. */
  last_end: string | null;
}

export interface StatusSocket {
  close(): Promise<void>;
}

/**
 * Serves `GET /healthz` (200 while the link is up, else 503) and `GET /loops` on `<state_dir>/agent.sock`. `status` is undefined
 * while the agent starts. @throws Error if another agent has the socket
 */
export async function openStatusSocket(stateDir: string, status: () => AgentStatus | undefined): Promise<StatusSocket> {
  const path = join(stateDir, 'agent.sock');
  if (await hasListener(path)) throw new Error(`another agent runs already: ${path} answers`);
  await removePath(path);
  const server = createServer((request, response) => {
    const now = status();
    if (now === undefined) return reply(response, 503, { error: 'the agent is starting' });
    if (request.method !== 'GET') return reply(response, 405, { error: 'only GET' });
    if (request.url === '/healthz') return reply(response, now.link.connected ? 200 : 503, now.link);
    if (request.url === '/loops') return reply(response, 200, now);
    return reply(response, 404, { error: 'there are /healthz and /loops' });
  });
  server.listen(path);
  await once(server, 'listening');
  // Without a listener, a connection that cannot be accepted would end the process. Whoever made it sees that it breaks off.
  server.on('error', () => undefined);
  await chmod(path, 0o600);
  return {
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function reply(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(`${JSON.stringify(body)}\n`);
}

/** Whether somebody listens on a unix socket. */
export async function hasListener(path: string): Promise<boolean> {
  const socket = await dialListener(path);
  socket?.destroy();
  return socket !== undefined;
}

/** A connection to the listener on a unix socket, or undefined if there is none. */
export function dialListener(path: string): Promise<Socket | undefined> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => resolve(socket));
    socket.on('error', () => {
      socket.destroy();
      resolve(undefined);
    });
  });
}

/** Rejects if no agent runs on this state directory, if it still starts, or if it hangs. */
export async function askStatus(stateDir: string, clock: Clock = systemClock()): Promise<AgentStatus> {
  const socketPath = join(stateDir, 'agent.sock');
  const limit = new AbortController();
  const cancelLimit = clock.after(STATUS_MS_MAX, () => limit.abort());
  try {
    const { code, body } = await readLoops(socketPath, limit.signal);
    if (code !== 200) throw new Error(`the agent does not say how it is: ${body.trim()}`);
    return JSON.parse(body) as AgentStatus;
  } catch (error) {
    if (!limit.signal.aborted) throw error;
    const seconds = STATUS_MS_MAX / 1000;
    throw new Error(
      `the agent at ${socketPath} has not answered for ${seconds} seconds: it hangs or is stopped, so restart it; its containers go on`,
      { cause: error },
    );
  } finally {
    cancelLimit();
  }
}

function readLoops(socketPath: string, signal: AbortSignal): Promise<{ code: number; body: string }> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, path: '/loops', agent: false, signal }, (response) => {
      text(response).then((body) => resolve({ code: response.statusCode ?? 0, body }), reject);
    });
    asked.on('error', (error) => {
      const message =
        codeOf(error) === 'EACCES'
          ? `only root may ask the agent at ${socketPath}: run this command as root`
          : `no agent answers at ${socketPath}: start it`;
      reject(new Error(message, { cause: error }));
    });
    asked.end();
  });
}

/** One line for each condition that must hold before the host is rented out. `isWell` is true if all hold. */
export function statusWords(status: AgentStatus): { lines: string[]; isWell: boolean } {
  const { link, loops, gpu_faults: faults, engine_version: engine, network_fence: fence, fence_error: hole } = status;
  // A host without these limits may be rented out.
  const lack = status.holders_lack;
  const { disk_error: disk, containers_doubt: doubt } = status;
  const failing = loops.filter((loop) => loop.last_error !== null);
  const gpus = status.gpu_error === '' ? `${status.gpus}` : `not known: ${status.gpu_error}`;
  return {
    lines: [
      `agent: ${status.version}`,
      `machine: ${status.machine_id} of ${status.url}`,
      `link: ${link.connected ? 'up' : `down${link.last_end === null ? '' : `, ${link.last_end}`}`}`,
      `gpus: ${gpus}`,
      ...faults.map(({ uuid, severity, detail }) => `gpu ${uuid} is ${severity}: ${detail}`),
      `docker engine: ${engine === '' ? 'does not answer' : engine}`,
      ...(doubt === '' ? [] : [`containers: ${doubt}`]),
      `network fence: ${hole === '' ? fence : `${fence}, does not stand: ${hole}`}`,
      `holders: ${lack === '' ? 'confined' : `not wholly confined: ${lack}`}`,
      ...(disk === '' ? [] : [`state folder: ${disk}`]),
      ...failing.map((loop) => `loop ${loop.name} fails: ${loop.last_error}`),
    ],
    isWell:
      link.connected &&
      status.gpus > 0 &&
      [...faults, ...failing].length === 0 &&
      engine !== '' &&
      doubt === '' &&
      hole === '' &&
      disk === '',
  };
}
