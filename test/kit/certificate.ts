// A certificate of our own for a test server: for names and addresses, valid for a day.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { requireProgram } from './setup.ts';

/** PEM texts; `cert` is its own authority. */
export interface Certificate {
  key: string;
  cert: string;
}

/** `names` are subject alternative names like `DNS:example.com` and `IP:127.0.0.1`. */
export function makeCertificate(names: readonly string[]): Certificate {
  const dir = mkdtempSync(join(tmpdir(), 'certificate-'));
  try {
    const [keyFile, certFile] = [join(dir, 'key.pem'), join(dir, 'cert.pem')];
    const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', keyFile];
    const what = ['-subj', '/CN=test', '-days', '1', '-addext', `subjectAltName=${names.join(',')}`];
    execFileSync(requireProgram('openssl'), ['req', '-x509', ...key, ...what, '-out', certFile], { stdio: 'pipe' });
    return { key: readFileSync(keyFile, 'utf8'), cert: readFileSync(certFile, 'utf8') };
  } finally {
    rmSync(dir, { recursive: true });
  }
}
