// A certificate from files, taken over anew when they change: whoever renews it need not know of this process.
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
  /** For a server that is being made. */
  options(): SecureContextOptions;
  /** Connections that `server` takes from now on get what the files hold; those that are open stay as they are. */
  serve(server: Server): void;
  /** Looks at the files. A pair that does not fit together is told and changes nothing. */
  refresh(): void;
}

/** @throws Error where the files cannot be read or are no pair: a server without a certificate would serve nobody */
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
        // Said once: the two files are rarely replaced at the same instant, and the next look finds the other one too.
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
  // Throws where the two do not belong together.
  createSecureContext(options);
  return { options, fingerprint: createHash('sha256').update(cert).update('\0').update(key).digest('hex') };
}
