// An OpenID provider: discovery, keys and a token endpoint. Codes come from the test, as if somebody had signed in on the provider's page.
import { createHash, createSign, generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';

export interface OpenidProvider {
  issuer: string;
  /** How often the provider was asked about itself. */
  asked(): number;
  /** How often it was asked for the tokens of a code. */
  askedForTokens(): number;
  /** From now on, the provider answers with failures only, or again as usual. */
  setAway(isAway: boolean): void;
  /** A person signs in at this address and comes back with this query. `change` plants a fault into the claims. */
  signIn(url: string, person: { sub: string; email: string; email_verified: boolean }, change?: object): string;
  close(): Promise<void>;
}

export const CLIENT = { clientId: 'svc', clientSecret: 'the client secret' };

export async function startOpenidProvider(): Promise<OpenidProvider> {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const granted = new Map<string, { claims: object; challenge: string }>();
  let issuer = '';
  let asked = 0;
  let askedForTokens = 0;
  let isAway = false;
  const answerTo = (path: string, body: URLSearchParams, authorization: string | undefined): object | undefined => {
    if (path === '/.well-known/openid-configuration') asked += 1;
    if (path === '/token') askedForTokens += 1;
    if (isAway) return undefined;
    if (path === '/.well-known/openid-configuration') return discoveryOf(issuer);
    if (path === '/jwks')
      return { keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k1', alg: 'RS256', use: 'sig' }] };
    const grant = granted.get(body.get('code') ?? '');
    granted.delete(body.get('code') ?? '');
    const verifier = createHash('sha256')
      .update(body.get('code_verifier') ?? '')
      .digest('base64url');
    const isClient = isOurs(body, authorization);
    if (grant === undefined || verifier !== grant.challenge || !isClient) return undefined;
    const idToken = signed({ alg: 'RS256', kid: 'k1' }, grant.claims);
    return { access_token: 'x', token_type: 'Bearer', expires_in: 60, id_token: idToken };
  };
  const signed = (header: object, claims: object): string => {
    const text = [header, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
    return `${text}.${createSign('sha256').update(text).sign(privateKey).toString('base64url')}`;
  };
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = new URLSearchParams(Buffer.concat(chunks).toString());
      const answer = answerTo(request.url ?? '', body, request.headers.authorization);
      response.writeHead(answer === undefined ? refusalOf(isAway) : 200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(answer ?? { error: 'invalid_grant' }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  issuer = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  return {
    issuer,
    asked: () => asked,
    askedForTokens: () => askedForTokens,
    setAway: (next) => (isAway = next),
    signIn: (url, person, change = {}) => {
      const parameters = new URL(url).searchParams;
      const nowSeconds = Math.floor(Date.now() / 1000);
      const claims = {
        iss: issuer,
        aud: CLIENT.clientId,
        iat: nowSeconds,
        exp: nowSeconds + 60,
        nonce: parameters.get('nonce'),
      };
      const code = `code-${granted.size}-${parameters.get('state')}`;
      granted.set(code, {
        claims: { ...claims, ...person, ...change },
        challenge: parameters.get('code_challenge') ?? '',
      });
      return new URLSearchParams({ code, state: parameters.get('state') ?? '', iss: issuer }).toString();
    },
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

function refusalOf(isAway: boolean): number {
  return isAway ? 503 : 400;
}

function discoveryOf(issuer: string): object {
  return {
    issuer,
    authorization_endpoint: `${issuer}/authorize`,
    token_endpoint: `${issuer}/token`,
    jwks_uri: `${issuer}/jwks`,
    response_types_supported: ['code'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['RS256'],
    code_challenge_methods_supported: ['S256'],
  };
}

function isOurs(body: URLSearchParams, authorization: string | undefined): boolean {
  const posted = body.get('client_id') === CLIENT.clientId && body.get('client_secret') === CLIENT.clientSecret;
  const basic = Buffer.from((authorization ?? '').replace(/^Basic /, ''), 'base64').toString();
  return posted || decodeURIComponent(basic.replaceAll('+', ' ')) === `${CLIENT.clientId}:${CLIENT.clientSecret}`;
}
