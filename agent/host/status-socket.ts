// The operator's window into a running agent: HTTP on a unix socket that only root can open. It is also the lock against a second agent.
import { createServer, type ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import type { LoopStatus } from '../../shared/loop.ts';
import type { GpuFault } from '../../shared/protocol/inventory.ts';
import { removePath } from './state.ts';

/** What an operator sees of a running agent. */
export interface AgentStatus {
  version: string;
  link: LinkStatus;
  loops: LoopStatus[];
  /** How many, and why they are not known; empty where they are. */
  gpus: number;
  gpu_error: string;
  /** Those that are not fit to be rented. */
  gpu_faults: GpuFault[];
  /** Empty while it does not answer. */
  engine_version: string;
  network_fence: string;
  /** Why it does not stand; empty where it does. */
  fence_error: string;
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
 * while the agent starts. @throws Error where another agent holds the socket
 */
export async function openStatusSocket(stateDir: string, status: () => AgentStatus | undefined): Promise<StatusSocket> {
  const path = join(stateDir, 'agent.sock');
  if (await answers(path)) throw new Error(`another agent runs already: ${path} answers`);
  await removePath(path);
  const server = createServer((request, response) => {
    const now = status();
    if (now === undefined) return reply(response, 503, { error: 'the agent is starting' });
    if (request.method !== 'GET') return reply(response, 405, { error: 'only GET' });
    if (request.url === '/healthz') return reply(response, now.link.connected ? 200 : 503, now.link);
    if (request.url === '/loops') return reply(response, 200, now);
    return reply(response, 404, { error: 'there are /healthz and /loops' });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, resolve);
  });
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

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
