// A TLS certificate from files. It is reloaded when the files change, so that a renewal needs no restart.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext, type SecureContextOptions, type Server } from 'node:tls';
import { messageOf } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import { readNamed } from '../../../shared/yaml-config.ts';

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

/** @throws Error if the files cannot be read or do not match: a server without a certificate could not serve anyone */
export function openTls(files: TlsFiles, { log }: { log: Log }): Tls {
  const servers = new Set<Server>();
  let current = readPair(files);
  let refused: string | undefined;
  return {
    options: () => current.options,
    serve: (server) => void servers.add(server),
    refresh: () => {
      try {
        const now = readPair(files);
        if (now.fingerprint === current.fingerprint) return;
        for (const server of servers) server.setSecureContext(now.options);
        current = now;
        refused = undefined;
        log.info({ certificate_file: files.certificate_file }, 'a new certificate is served');
      } catch (error) {
        // Logged once per error. The two files are rarely replaced at the same instant, and the next refresh finds both.
        if (refused === messageOf(error)) return;
        refused = messageOf(error);
        log.error({ ...files, detail: refused }, 'the certificate files cannot be used; the old certificate is served');
      }
    },
  };
}

interface Pair {
  options: SecureContextOptions;
  fingerprint: string;
}

function readPair({ certificate_file, key_file }: TlsFiles): Pair {
  const cert = readNamed('tls.certificate_file', certificate_file, (path) => readFileSync(path));
  const key = readNamed('tls.key_file', key_file, (path) => readFileSync(path));
  const options = { cert, key, minVersion: 'TLSv1.2' as const };
  // Throws if the certificate and the key do not match.
  createSecureContext(options);
  return { options, fingerprint: createHash('sha256').update(cert).update('\0').update(key).digest('hex') };
}
