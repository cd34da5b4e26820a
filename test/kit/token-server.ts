// The token server of a registry: signs tokens of distribution's token specification for callers with the login.
import { createPrivateKey, sign, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runProgram } from './processes.ts';
import { LOGIN, type RegistryAuth } from './registry.ts';
import { requireProgram } from './setup.ts';

export interface TokenServer {
  /** `127.0.0.1:port` */
  host: string;
  port: number;
  /** The settings of the registry that believes it. */
  auth: RegistryAuth;
  /** Scopes that tokens were given for. */
  scopes: string[];
  stop(): Promise<void>;
}

const SERVICE = 'test registry';
const ISSUER = 'test';
const LIFE_SECONDS = 300;

export async function startTokenServer(): Promise<TokenServer> {
  const dir = mkdtempSync(join(tmpdir(), 'tokens-'));
  const [keyFile, certificateFile] = [join(dir, 'key.pem'), join(dir, 'certificate.pem')];
  const args = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=tokens', '-days', '2'];
  await runProgram({
    command: requireProgram('openssl'),
    args: [...args, '-keyout', keyFile, '-out', certificateFile],
  });
  const signer = {
    key: createPrivateKey(readFileSync(keyFile)),
    certificate: new X509Certificate(readFileSync(certificateFile)),
  };
  const scopes: string[] = [];
  const wanted = `Basic ${Buffer.from(`${LOGIN.username}:${LOGIN.password}`).toString('base64')}`;
  const server = createServer((request, response) => {
    const { searchParams } = new URL(request.url ?? '', 'http://tokens');
    const scope = searchParams.get('scope') ?? '';
    if (request.headers.authorization !== wanted || searchParams.get('service') !== SERVICE) {
      response.writeHead(401).end('{"errors":[{"code":"UNAUTHORIZED"}]}');
      return;
    }
    scopes.push(scope);
    response.end(JSON.stringify({ token: tokenFor(scope, signer), expires_in: LIFE_SECONDS }));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const host = `127.0.0.1:${port}`;
  return {
    host,
    port,
    auth: { kind: 'token', realm: `http://${host}/token`, service: SERVICE, issuer: ISSUER, certificateFile },
    scopes,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      rmSync(dir, { recursive: true });
    },
  };
}

/** A JSON Web Token that carries the signer's certificate. */
function tokenFor(
  scope: string,
  { key, certificate }: { key: ReturnType<typeof createPrivateKey>; certificate: X509Certificate },
): string {
  const [type, name, actions = ''] = scope.split(':');
  const now = Math.floor(Date.now() / 1000);
  const header = { typ: 'JWT', alg: 'RS256', x5c: [certificate.raw.toString('base64')] };
  const claims = {
    iss: ISSUER,
    sub: LOGIN.username,
    aud: SERVICE,
    iat: now,
    nbf: now - 5,
    exp: now + LIFE_SECONDS,
    jti: `${now}`,
    access: [{ type, name, actions: actions.split(',') }],
  };
  const encode = (part: object): string => Buffer.from(JSON.stringify(part)).toString('base64url');
  const signed = `${encode(header)}.${encode(claims)}`;
  return `${signed}.${sign('sha256', Buffer.from(signed), key).toString('base64url')}`;
}
