// The TLS certificate of a server comes from files. They are read again when they change, so that a renewal needs no restart.
//
// A renewal is refused if clients would refuse it and take the old certificate: it is expired, or it is for another host. Example: a program for
// renewals writes the certificate of shop.example.com into the files of api.example.com. The log has an error, and api.example.com goes on.
import { createHash, createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { createSecureContext, type SecureContextOptions, type Server } from 'node:tls';
import type { Clock } from '../../../shared/clock.ts';
import { messageOf } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import { readNamed } from '../../../shared/yaml-config.ts';

/** Paths of PEM files: the certificate with its chain, and its key. */
export interface TlsFiles {
  certificate_file: string;
  key_file: string;
}

/** What a certificate is for. */
export interface TlsUse {
  /** The setting that names the files. */
  setting: string;
  /** Host names and addresses at which clients reach the server. */
  hosts: readonly string[];
}

export interface Tls {
  readonly setting: string;
  /** Options to create a server with. */
  options(): SecureContextOptions;
  /** New connections of `server` use the current files. Open connections stay unchanged. */
  serve(server: Server): void;
  /**
   * Reads the files again, and logs once what is wrong with the certificate that is served. New files that cannot be used, or that clients would
   * refuse although they take the old certificate, are logged and change nothing.
   */
  refresh(): void;
  /** When the certificate that is served expires, in epoch ms. */
  expiresMs(): number;
}

/** @throws Error if the files cannot be read or do not match: a server without a certificate could not serve anyone */
export function openTls(use: TlsUse, files: TlsFiles, { clock, log }: { clock: Clock; log: Log }): Tls {
  const { setting } = use;
  const servers = new Set<Server>();
  let current = readPair(setting, files);
  let refused: string | undefined;
  let complaint: string | undefined;
  // Each reason is logged once. The two files are rarely replaced at the same instant, so the reason may be gone at the next refresh.
  const refuse = (detail: string): void => {
    if (refused === detail) return;
    refused = detail;
    log.error({ ...files, detail }, 'the new certificate files cannot be used; the old certificate is served');
  };
  const readAgain = (): void => {
    const now = readPair(setting, files);
    if (now.fingerprint === current.fingerprint) return;
    const fault = faultAt(now.certificate, hostsOf(current, use), clock.now());
    if (fault !== undefined && faultAt(current.certificate, [], clock.now()) === undefined)
      return refuse(`${setting}.certificate_file names ${files.certificate_file}, which ${fault}`);
    for (const server of servers) server.setSecureContext(now.options);
    current = now;
    refused = undefined;
    const expires = now.certificate.validToDate.toISOString();
    log.info({ certificate_file: files.certificate_file, expires }, 'a new certificate is served');
  };
  return {
    setting,
    options: () => current.options,
    serve: (server) => void servers.add(server),
    refresh: () => {
      try {
        readAgain();
      } catch (error) {
        refuse(messageOf(error));
      }
      const fault = faultAt(current.certificate, use.hosts, clock.now());
      if (fault !== undefined && fault !== complaint)
        log.warn(
          { certificate_file: files.certificate_file },
          `the certificate of ${setting} ${fault}: clients refuse it`,
        );
      complaint = fault;
    },
    expiresMs: () => current.certificate.validToDate.getTime(),
  };
}

interface Pair {
  options: SecureContextOptions;
  certificate: X509Certificate;
  fingerprint: string;
}

function readPair(setting: string, { certificate_file, key_file }: TlsFiles): Pair {
  const [certName, keyName] = [`${setting}.certificate_file`, `${setting}.key_file`];
  const cert = readNamed(certName, certificate_file, (path) => readFileSync(path));
  const key = readNamed(keyName, key_file, (path) => readFileSync(path));
  const certificate = parsed(
    () => new X509Certificate(cert),
    `${certName} names ${certificate_file}, which is not a certificate: it must be PEM, the certificate first and then its chain`,
  );
  const privateKey: KeyObject = parsed(
    () => createPrivateKey(key),
    `${keyName} names ${key_file}, which is not a private key: it must be PEM, without a passphrase`,
  );
  if (!certificate.checkPrivateKey(privateKey))
    throw new Error(
      `${keyName} names ${key_file}, which is not the key of the certificate in ${certificate_file} (${certName}): the two must belong together`,
    );
  const options = { cert, key, minVersion: 'TLSv1.2' as const };
  // Throws if the rest of the chain cannot be read.
  parsed(() => createSecureContext(options), `${certName} names ${certificate_file}, whose chain cannot be used`);
  return {
    options,
    certificate,
    fingerprint: createHash('sha256').update(cert).update('\0').update(key).digest('hex'),
  };
}

/** @throws Error with `rule`, and what is wrong */
function parsed<T>(parse: () => T, rule: string): T {
  try {
    return parse();
  } catch (error) {
    throw new Error(`${rule} (${messageOf(error)})`, { cause: error });
  }
}

/** Why clients refuse the certificate, after "the certificate"; undefined if they take it, as far as it depends on time and name. */
function faultAt(certificate: X509Certificate, hosts: readonly string[], nowMs: number): string | undefined {
  const { validFromDate: from, validToDate: to } = certificate;
  if (to.getTime() <= nowMs) return `has been expired since ${to.toISOString()}`;
  if (from.getTime() > nowMs) return `is not valid before ${from.toISOString()}`;
  const missing = hosts.filter((host) => !isFor(certificate, host));
  if (missing.length === 0) return undefined;
  return `is not valid for ${missing.join(' and ')} (it names ${certificate.subjectAltName ?? certificate.subject})`;
}

/** The hosts for which the certificate is valid. If a proxy in front ends TLS with one of its own, ours may be for none of them. */
function hostsOf({ certificate }: Pair, { hosts }: TlsUse): string[] {
  return hosts.filter((host) => isFor(certificate, host));
}

function isFor(certificate: X509Certificate, host: string): boolean {
  const found = isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host);
  return found !== undefined;
}
