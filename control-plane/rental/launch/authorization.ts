// How a registry asks for authorization, and what is sent to it: pure readings of its challenge and of its token server's answer.
import { z } from 'zod';
import type { PullLogin } from '../../../shared/protocol/link.ts';

export interface RegistryLogin {
  username: string;
  password: string;
}

export type Challenge = { scheme: 'bearer'; realm: string; service: string | undefined } | { scheme: 'basic' };

/** From a WWW-Authenticate header; undefined where it asks for neither Bearer nor Basic. */
export function readChallenge(header: string | undefined): Challenge | undefined {
  const bearer = /(?:^|,)\s*bearer\s+(.*)$/i.exec(header ?? '')?.[1];
  if (bearer !== undefined) {
    const parameters = [...bearer.matchAll(/(\w+)=(?:"([^"]*)"|([^\s,"]+))/g)];
    const named = (name: string): string | undefined => {
      const found = parameters.find(([, key]) => key?.toLowerCase() === name);
      return found?.[2] ?? found?.[3];
    };
    const realm = named('realm');
    if (realm !== undefined) return { scheme: 'bearer', realm, service: named('service') };
  }
  return /(?:^|,)\s*basic(\s|$)/i.test(header ?? '') ? { scheme: 'basic' } : undefined;
}

/** Where a token that may pull this one repository is had; undefined where the realm is no URL. */
export function tokenUrl(
  challenge: { realm: string; service: string | undefined },
  repository: string,
): string | undefined {
  const url = URL.parse(challenge.realm);
  if (url === null) return undefined;
  if (challenge.service !== undefined) url.searchParams.set('service', challenge.service);
  // Our own words, whatever the challenge asks for: never more than to pull this.
  url.searchParams.set('scope', `repository:${repository}:pull`);
  return url.href;
}

const TokenAnswer = z.object({ token: z.string().optional(), access_token: z.string().optional() });

/** The token of a token server's answer, or undefined where there is none that can be sent in a header. */
export function readToken(body: Buffer): string | undefined {
  const parsed = TokenAnswer.safeParse(jsonOf(body));
  const token = parsed.success ? (parsed.data.token ?? parsed.data.access_token) : undefined;
  return token !== undefined && /^[\x21-\x7e]+$/.test(token) ? token : undefined;
}

/** The Authorization header. */
export function authorizationHeader(login: PullLogin): string {
  return login.kind === 'bearer' ? `Bearer ${login.token}` : basicHeader(login);
}

export function basicHeader({ username, password }: RegistryLogin): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}

/** Undefined for what is no JSON. */
export function jsonOf(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return undefined;
  }
}
