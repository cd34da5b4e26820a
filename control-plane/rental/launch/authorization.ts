// Reads a registry's authorization challenge and its token server's answer, and builds the Authorization header. Pure.
import { z } from 'zod';
import { parseJson } from '../../../shared/json.ts';
import { REGISTRY_JSON_VALUES_MAX } from '../../../shared/limits.ts';
import type { PullLogin } from '../../../shared/protocol/link.ts';

export interface RegistryLogin {
  username: string;
  password: string;
}

export type Challenge = { scheme: 'bearer'; realm: string; service: string | undefined } | { scheme: 'basic' };

/** Real challenges have a few hundred characters. */
const CHALLENGE_CHARS_MAX = 2_048;
/** Sticky patterns: each one matches at the current position only, so the header is read in one pass. */
const SEPARATORS = /[\s,]*/y;
const TOKEN = /[^\s,="]+/y;
const VALUE = /=(?:"([^"]*)"|([^\s,"]*))/y;

/** Reads a WWW-Authenticate header; undefined if it is too long or has neither Bearer nor Basic. */
export function readChallenge(header: string | undefined): Challenge | undefined {
  if (header === undefined || header.length > CHALLENGE_CHARS_MAX) return undefined;
  const challenges = readChallenges(header);
  const bearer = challenges.find(({ scheme, parameters }) => scheme === 'bearer' && parameters.has('realm'));
  if (bearer !== undefined) {
    const { parameters } = bearer;
    return { scheme: 'bearer', realm: parameters.get('realm') ?? '', service: parameters.get('service') };
  }
  return challenges.some(({ scheme }) => scheme === 'basic') ? { scheme: 'basic' } : undefined;
}

interface NamedChallenge {
  scheme: string;
  /** The first value of each name counts. */
  parameters: Map<string, string>;
}

/** A word is a scheme, or the name of a parameter of the last scheme if "=" and a value follow (RFC 9110, section 11.6.1). */
function readChallenges(header: string): NamedChallenge[] {
  const challenges: NamedChallenge[] = [];
  let at = 0;
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const found = pattern.exec(header);
    if (found !== null) at = pattern.lastIndex;
    return found;
  };
  while (at < header.length) {
    take(SEPARATORS);
    const word = take(TOKEN)?.[0].toLowerCase();
    const value = take(VALUE);
    if (word === undefined && value === null) at += 1;
    if (word === undefined) continue;
    const parameters = challenges.at(-1)?.parameters;
    if (value === null) challenges.push({ scheme: word, parameters: new Map() });
    else if (parameters?.has(word) === false) parameters.set(word, value[1] ?? value[2] ?? '');
  }
  return challenges;
}

/** The URL that issues a token for pulling this one repository; undefined if the realm is not a URL. */
export function tokenUrl(
  challenge: { realm: string; service: string | undefined },
  repository: string,
): string | undefined {
  const url = URL.parse(challenge.realm);
  if (url === null) return undefined;
  if (challenge.service !== undefined) url.searchParams.set('service', challenge.service);
  // The scope is ours, whatever the challenge asks for, so a token never allows more than to pull this repository.
  url.searchParams.set('scope', `repository:${repository}:pull`);
  return url.href;
}

const TokenAnswer = z.object({ token: z.string().optional(), access_token: z.string().optional() });

/** The token in a token server's answer; undefined if there is none that fits into a header. */
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

/** Undefined if the body is not JSON or has too many values. */
export function jsonOf(body: Buffer, valuesMax = REGISTRY_JSON_VALUES_MAX): unknown {
  try {
    return parseJson(body.toString('utf8'), valuesMax);
  } catch {
    return undefined;
  }
}
