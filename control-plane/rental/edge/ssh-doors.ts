// SSH listeners: one TCP port per open door; each connection becomes a stream to the holder on the instance's host.
import { createServer, type Server, type Socket } from 'node:net';
import { pipeline } from 'node:stream';
import { messageOf } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import { SSH_CONNECTIONS_MAX } from '../../../shared/limits.ts';
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import type { Db } from '../../base/db/db.ts';
import type { Link } from '../../fleet/link/link.ts';
import type { Door, Doors } from '../doors/doors.ts';
import type { DoorAccess } from './access.ts';

export interface SshDoors {
  /** Opens a listener for every open door and closes all others, with their connections. */
  sync(): Promise<void>;
  close(): Promise<void>;
}

interface Listener {
  port: number;
  server: Server;
  sockets: Set<Socket>;
}

interface SshDoorsDeps {
  db: Db;
  log: Log;
  link: Pick<Link, 'openStream'>;
  doors: Doors;
  host: string;
  /** Who may come in right now; undefined where the instance is not to be reached. */
  access(instanceId: string): Promise<DoorAccess | undefined>;
}

export function openSshDoors(deps: SshDoorsDeps): SshDoors {
  const { db, log } = deps;
  const listeners = new Map<string, Listener>();

  const listen = async (door: Door): Promise<void> => {
    const sockets = new Set<Socket>();
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      sockets.add(socket);
      socket.on('close', () => sockets.delete(socket));
      // A client that resets its connection is no event of ours.
      socket.on('error', () => undefined);
      relay(door.instance_id, socket, deps).catch((error: unknown) => {
        log.info({ instance_id: door.instance_id, reason: messageOf(error) }, 'an SSH connection could not be relayed');
        socket.destroy();
      });
    });
    server.maxConnections = SSH_CONNECTIONS_MAX;
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(door.ssh_port, deps.host, resolve);
    });
    listeners.set(door.instance_id, { port: door.ssh_port, server, sockets });
  };

  const shut = async (instanceId: string, listener: Listener): Promise<void> => {
    listeners.delete(instanceId);
    for (const socket of listener.sockets) socket.destroy();
    await new Promise<void>((resolve) => listener.server.close(() => resolve()));
  };

  return {
    sync: async () => {
      const open = new Map((await deps.doors.openDoors(db.read)).map((door) => [door.instance_id, door]));
      for (const [instanceId, listener] of listeners) {
        if (open.get(instanceId)?.ssh_port !== listener.port) await shut(instanceId, listener);
      }
      for (const door of open.values()) {
        if (listeners.has(door.instance_id)) continue;
        await listen(door).catch((error: unknown) => {
          log.error(
            { instance_id: door.instance_id, port: door.ssh_port, err: error },
            'an SSH port could not be opened; it is tried again',
          );
        });
      }
    },
    close: async () => {
      await Promise.all([...listeners].map(([instanceId, listener]) => shut(instanceId, listener)));
    },
  };
}

/** Resolves once bytes flow; from then on either end closes the other. */
async function relay(instanceId: string, socket: Socket, deps: SshDoorsDeps): Promise<void> {
  const access = await deps.access(instanceId);
  if (access === undefined || socket.destroyed) return void socket.destroy();
  const target: OpenMessage['target'] = {
    kind: 'ssh',
    authorized_keys: access.authorizedKeys,
    probe_key: access.probeKey,
    client_ip: socket.remoteAddress ?? '',
  };
  const stream = await deps.link.openStream(access.machineId, access.workloadId, target);
  if (socket.destroyed) return void stream.destroy();
  const onEnd = (error: NodeJS.ErrnoException | null): void => {
    if (!error) return;
    socket.destroy();
    stream.destroy();
  };
  pipeline(socket, stream, onEnd);
  pipeline(stream, socket, onEnd);
}
