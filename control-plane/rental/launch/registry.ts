// Requests to registries. Each registry has a client, with its scheme and the addresses that it may lead to. A session with one registry about one
// repository answers its challenges, follows redirects, and repeats a request that got no answer once.
import type { Clock } from '../../../shared/clock.ts';
import type { PullLogin } from '../../../shared/protocol/link.ts';
import { OutboundError } from '../../base/outbound/policy.ts';
import {
  type OutboundRequest,
  type OutboundResponse,
  openOutbound,
  type Outbound,
} from '../../base/outbound/outbound.ts';
import {
  authorizationHeader,
  basicHeader,
  type Challenge,
  readChallenge,
  readToken,
  type RegistryLogin,
  tokenUrl,
} from './authorization.ts';
import { type ImageReference, hostOf } from './reference.ts';
import { blocked, refused, unreachable } from './refusals.ts';

/** A registry at a private address that the operator has named. `host` may have a port. */
export interface PrivateRegistry {
  host: string;
  plainHttp: boolean;
}

/** The client and the base URL for one registry. */
export interface RegistryClient {
  outbound: Outbound;
  /** Ends with `/v2/`. */
  baseUrl: string;
}

export interface RegistryClients {
  to(registry: string): RegistryClient;
  close(): Promise<void>;
}

/**
 * A registry that the operator has named may redirect to other named ones. Redirects and token servers of other registries may not lead there.
 * `resolve` and `ca` replace DNS and the system's certificates in tests.
 */
export function openRegistryClients(
  privateRegistries: readonly PrivateRegistry[],
  deps: { clock: Clock; resolve?: (hostname: string) => Promise<string[]>; ca?: string },
): RegistryClients {
  const policy = { ports: 'any' as const, privateNetworks: [] };
  const toStrangers = openOutbound({ ...policy, namedHosts: [] }, deps);
  const toNamed = openOutbound({ ...policy, namedHosts: privateRegistries }, deps);
  return {
    to: (registry) => {
      const named = privateRegistries.find(({ host }) => host === registry || host === registry.replace(/:\d+$/, ''));
      const scheme = named?.plainHttp === true ? 'http' : 'https';
      return { outbound: named === undefined ? toStrangers : toNamed, baseUrl: `${scheme}://${hostOf(registry)}/v2/` };
    },
    close: async () => {
      await Promise.all([toStrangers.close(), toNamed.close()]);
    },
  };
}

type Request = Pick<OutboundRequest, 'method' | 'url' | 'headers' | 'bodyBytesMax'>;
type SessionDeps = RegistryClient & { clock: Clock };

/** The login, the image, and the deadline of a session (on the monotonic clock). */
export interface RegistryTask {
  reference: ImageReference;
  login: RegistryLogin | undefined;
  untilMs: number;
}

export interface Session {
  /**
   * Requests `path` below the repository and returns a successful answer.
   * @throws ServiceError `image_unavailable`, `registry_unreachable`, `image_reference_invalid` for every other answer
   */
  ask(method: 'GET' | 'HEAD', path: string, want: { accept: string; bytesMax: number }): Promise<OutboundResponse>;
  /** The authorization that the registry has accepted; null if it asked for none. */
  authorization(): PullLogin | null;
}

/** Some registries refuse requests without a User-Agent. */
const USER_AGENT = 'svc-control-plane';
const REDIRECTS_MAX = 3;
const TOKEN_BYTES_MAX = 64 * 1024;
/** A registry that does not answer one request within this time counts as unreachable. */
const STATUS_MS_MAX = 10_000;

export function openSession(visit: RegistryTask, deps: SessionDeps): Session {
  const { reference, login } = visit;
  let authorization: PullLogin | null = null;
  const call = (request: Request) => callOnce(request, visit, deps);

  const authorize = async (header: string | undefined): Promise<PullLogin> => {
    const challenge = readChallenge(header);
    if (challenge === undefined) throw unreachable(reference, 'it asks for a login of a kind that is not known here');
    if (challenge.scheme === 'bearer') return { kind: 'bearer', token: await fetchToken(challenge) };
    if (login === undefined) throw refused(visit, 401);
    return { kind: 'basic', username: login.username, password: login.password };
  };

  const fetchToken = async (challenge: Extract<Challenge, { scheme: 'bearer' }>): Promise<string> => {
    const url = tokenUrl(challenge, reference.repository);
    if (url === undefined) throw unreachable(reference, 'it names no valid address for tokens');
    const headers = {
      accept: 'application/json',
      ...(login === undefined ? {} : { authorization: basicHeader(login) }),
    };
    const answer = await call({ method: 'GET', url, headers, bodyBytesMax: TOKEN_BYTES_MAX });
    if (answer.status !== 200) throw refused(visit, answer.status, answer.headers['retry-after']);
    return readToken(answer.body) ?? Promise.reject(unreachable(reference, 'its token server sent no token'));
  };

  const follow = async (request: Request, answer: OutboundResponse): Promise<OutboundResponse> => {
    let at = request.url;
    let current = answer;
    for (let hop = 0; isRedirect(current) && hop < REDIRECTS_MAX; hop += 1) {
      const next = URL.parse(current.headers['location'] ?? '', at);
      if (next === null) break;
      at = next.href;
      current = await call({ ...request, url: at });
    }
    return current;
  };

  return {
    authorization: () => authorization,
    ask: async (method, path, want) => {
      const url = `${deps.baseUrl}${reference.repository}/${path}`;
      const plain: Request = { method, url, headers: { accept: want.accept }, bodyBytesMax: want.bytesMax };
      const send = (): Promise<OutboundResponse> => {
        const more = authorization === null ? {} : { authorization: authorizationHeader(authorization) };
        return call({ ...plain, headers: { ...plain.headers, ...more } });
      };
      let answer = await send();
      if (answer.status === 401 && authorization === null) {
        authorization = await authorize(answer.headers['www-authenticate']);
        answer = await send();
      }
      // The target of a redirect may be another party, so it must not receive the authorization.
      answer = await follow(plain, answer);
      if (answer.status !== 200) throw refused(visit, answer.status, answer.headers['retry-after']);
      return answer;
    },
  };
}

function isRedirect({ status }: OutboundResponse): boolean {
  return [301, 302, 303, 307, 308].includes(status);
}

/** Returns any answer. A request that breaks before its answer is repeated once, because a kept connection may have just ended. */
async function callOnce(
  request: Request,
  { reference, untilMs }: RegistryTask,
  { clock, outbound }: SessionDeps,
): Promise<OutboundResponse> {
  const headers = { ...request.headers, 'user-agent': USER_AGENT };
  for (let attempt = 1; ; attempt += 1) {
    const leftMs = untilMs - clock.monotonicMs();
    if (leftMs <= 0) throw unreachable(reference, 'it took too long');
    try {
      return await outbound.request({
        ...request,
        headers,
        statusMs: Math.min(STATUS_MS_MAX, leftMs),
        totalMs: leftMs,
      });
    } catch (error) {
      if (!(error instanceof OutboundError)) throw error;
      if (error.code === 'blocked_address') throw blocked(reference, request.url);
      const isPassing = error.code === 'connect' || error.code === 'dns' || error.code === 'protocol';
      if (!isPassing || attempt === 2) throw unreachable(reference, error.message);
    }
  }
}
