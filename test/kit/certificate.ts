// Certificates of our own for test servers: for names and addresses, valid for a day.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { requireProgram } from './setup.ts';

/** PEM texts. */
export interface Certificate {
  key: string;
  cert: string;
}

export interface Authority {
  /** PEM of the authority. A client that trusts it trusts the certificates that it issues. */
  cert: string;
  /** `names` are subject alternative names like `DNS:example.com` and `IP:127.0.0.1`; `days` from now until it expires: 1 if left out. */
  issue(names: readonly string[], days?: number): Certificate;
}

const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];

/** A certificate that is its own authority; `names` as for `Authority.issue`. */
export function makeCertificate(names: readonly string[]): Certificate {
  return inFolder((file) => {
    const files = ['-keyout', file('key'), '-out', file('cert')];
    const what = ['-subj', '/CN=test', '-days', '1', '-addext', `subjectAltName=${names.join(',')}`];
    openssl(['req', '-x509', ...NEW_KEY, ...files, ...what]);
    return { key: readFileSync(file('key'), 'utf8'), cert: readFileSync(file('cert'), 'utf8') };
  });
}

export function makeAuthority(): Authority {
  const own = inFolder((file) => {
    const what = ['-subj', '/CN=test authority', '-days', '1', '-addext', 'keyUsage=keyCertSign'];
    openssl(['req', '-x509', ...NEW_KEY, '-keyout', file('key'), '-out', file('cert'), ...what]);
    return { key: readFileSync(file('key'), 'utf8'), cert: readFileSync(file('cert'), 'utf8') };
  });
  return { cert: own.cert, issue: (names, days = 1) => issue(own, names, days) };
}

function issue(authority: Certificate, names: readonly string[], days: number): Certificate {
  return inFolder((file) => {
    writeFileSync(file('ca.key'), authority.key);
    writeFileSync(file('ca'), authority.cert);
    writeFileSync(file('extensions'), `subjectAltName=${names.join(',')}\n`);
    openssl(['req', '-new', ...NEW_KEY, '-keyout', file('key'), '-out', file('request'), '-subj', '/CN=test']);
    const by = ['-CA', file('ca'), '-CAkey', file('ca.key'), '-extfile', file('extensions')];
    openssl(['x509', '-req', '-in', file('request'), ...by, '-days', String(days), '-out', file('cert')]);
    return { key: readFileSync(file('key'), 'utf8'), cert: readFileSync(file('cert'), 'utf8') };
  });
}

function inFolder<T>(work: (file: (name: string) => string) => T): T {
  const dir = mkdtempSync(join(tmpdir(), 'certificate-'));
  try {
    return work((name) => join(dir, name));
  } finally {
    rmSync(dir, { recursive: true });
  }
}

function openssl(args: readonly string[]): void {
  execFileSync(requireProgram('openssl'), args, { stdio: 'pipe' });
}
