// How a server listens: on a TCP address, or on a unix socket that only its owner may use. A TLS certificate comes from files. It is reloaded when
// the files change, so that a renewal needs no restart.
import { chmodSync, rmSync, readFileSync } from 'node:fs';
import type { IncomingMessage, Server as HttpServer } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { codeOf, messageOf } from '../../../shared/errors.ts';
import { createHash } from 'node:crypto';
import { createSecureContext, type SecureContextOptions, type Server } from 'node:tls';
import type { Log } from '../../../shared/log.ts';
import { readNamed } from '../../../shared/yaml-config.ts';

export type ListenAddress = { host: string; port: number } | { socketPath: string };

export async function listenOn(app: FastifyInstance, address: ListenAddress): Promise<void> {
  if (!('socketPath' in address)) {
    // fastify adds members of its own to what it is given, and this is a part of the configuration.
    await app.listen({ ...address }).catch((error: unknown) => {
      throw new Error(unboundText(address, error), { cause: error });
    });
    return;
  }
  const { socketPath } = address;
  if (await answers(socketPath)) throw new Error(`another process is listening on ${socketPath}`);
  rmSync(socketPath, { force: true });
  // The socket file must never be accessible to others, not even between bind and chmod.
  const before = process.umask(0o177);
  try {
    await app.listen({ path: socketPath });
  } finally {
    process.umask(before);
  }
  chmodSync(socketPath, 0o600);
}

/** Paths of PEM files: the certificate with its chain, and its key. */
export interface TlsFiles {
  certificate_file: string;
  key_file: string;
}

export interface Tls {
  /** Options to create a server with. */
  options(): SecureContextOptions;
  /** New connections of `server` use the current files. Open connections stay unchanged. */
  serve(server: Server): void;
  /** Reads the files again. If certificate and key do not match, it logs that and changes nothing. */
  refresh(): void;
}

/**
 * `setting` is the one that names the files.
 * @throws Error if the files cannot be read or do not match: a server without a certificate could not serve anyone
 */
export function openTls(setting: string, files: TlsFiles, { log }: { log: Log }): Tls {
  const servers = new Set<Server>();
  let current = readPair(setting, files);
  let refused: string | undefined;
  return {
    options: () => current.options,
    serve: (server) => void servers.add(server),
    refresh: () => {
      try {
        const now = readPair(setting, files);
        if (now.fingerprint === current.fingerprint) return;
        for (const server of servers) server.setSecureContext(now.options);
        current = now;
        refused = undefined;
        log.info({ certificate_file: files.certificate_file }, 'a new certificate is served');
      } catch (error) {
        // Each error is logged once. The two files are rarely replaced at the same instant, so the error may be gone at the next refresh.
        if (refused === messageOf(error)) return;
        refused = messageOf(error);
        log.error({ ...files, detail: refused }, 'the certificate files cannot be used; the old certificate is served');
      }
    },
  };
}

/**
 * The open connections that have not sent a request. Browsers and Node's `fetch` keep such connections ready, and Node's server would wait for their
 * first request until the time limit of a close.
 */
export function silentConnections(server: HttpServer, tls: Tls | undefined): ReadonlySet<Socket> {
  const silent = new Set<Socket>();
  server.on(tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => {
    silent.add(socket);
    socket.once('close', () => silent.delete(socket));
  });
  server.on('request', ({ socket }: IncomingMessage) => silent.delete(socket));
  server.on('upgrade', ({ socket }: IncomingMessage) => silent.delete(socket));
  return silent;
}

export function unboundText({ host, port }: { host: string; port: number }, error: unknown): string {
  if (codeOf(error) === 'EADDRINUSE')
    return `another process listens on ${host} port ${port}: end it, or set another port`;
  return `${host} port ${port} cannot be listened on: ${messageOf(error)}`;
}

/** Whether a process answers on the socket file. If none does, a killed process has left the file behind. */
function answers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

interface Pair {
  options: SecureContextOptions;
  fingerprint: string;
}

function readPair(setting: string, { certificate_file, key_file }: TlsFiles): Pair {
  const cert = readNamed(`${setting}.certificate_file`, certificate_file, (path) => readFileSync(path));
  const key = readNamed(`${setting}.key_file`, key_file, (path) => readFileSync(path));
  const options = { cert, key, minVersion: 'TLSv1.2' as const };
  // Throws if the certificate and the key do not match.
  createSecureContext(options);
  return { options, fingerprint: createHash('sha256').update(cert).update('\0').update(key).digest('hex') };
}
