// Which URLs and addresses may be called: pure rules over the operator's configuration, and the error of every failed request.
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

export interface OutboundPolicy {
  ports: readonly number[] | 'any';
  /** CIDR networks that may be called although they are private. */
  privateNetworks: readonly string[];
  /**
   * Hosts that the operator has configured, as `host` (any port) or `host:port`. Any address is allowed, and plain http if `plainHttp` is
   * set.
   */
  namedHosts: readonly { host: string; plainHttp: boolean }[];
}

/** A URL that passed all checks that are possible before its name is resolved. */
export interface Target {
  origin: string;
  /** Path and query. */
  path: string;
  /** An IPv6 address has no brackets here. */
  hostname: string;
  port: number;
  isTls: boolean;
  /** True if the operator has configured this host. Its addresses are not checked. */
  isNamed: boolean;
}

export interface Policy {
  /** @throws OutboundError blocked_address for a URL that is never allowed */
  target(url: string): Target;
  /** Whether a connection for `target` may reach this address. */
  allows(target: Target, address: string): boolean;
}

/** @throws Error if a network is not a CIDR range */
export function openPolicy(policy: OutboundPolicy): Policy {
  const networks = policy.privateNetworks.map((network) => ipaddr.parseCIDR(network));
  const allows = (target: Target, address: string): boolean => {
    if (target.isNamed) return true;
    if (isIP(address) === 0) return false;
    const parsed = ipaddr.parse(address);
    if (isPublic(parsed)) return true;
    return networks.some(([network, bits]) => network.kind() === parsed.kind() && parsed.match(network, bits));
  };
  return {
    allows,
    target: (url) => {
      const parsed = parse(url);
      const port = portOf(parsed);
      const named = policy.namedHosts.find(
        ({ host }) => host === parsed.hostname || host === `${parsed.hostname}:${port}`,
      );
      const target: Target = {
        origin: parsed.origin,
        path: `${parsed.pathname}${parsed.search}`,
        hostname: parsed.hostname.replace(/^\[|\]$/g, ''),
        port,
        isTls: parsed.protocol === 'https:',
        isNamed: named !== undefined,
      };
      if (parsed.protocol !== 'https:' && !(parsed.protocol === 'http:' && named?.plainHttp === true)) {
        throw blocked('must be an https URL');
      }
      if (named !== undefined) return target;
      if (policy.ports !== 'any' && !policy.ports.includes(target.port)) {
        throw blocked(`must use port ${policy.ports.join(' or ')}`);
      }
      if (/(^|\.)localhost\.?$/.test(target.hostname)) throw blocked('must not name localhost');
      if (isIP(target.hostname) !== 0 && !allows(target, target.hostname)) {
        throw blocked(`must not name ${target.hostname}, which is not a public address`);
      }
      return target;
    },
  };
}

/** The target of a connection that the caller opens itself. */
export function dialledTarget(url: string): Target {
  const parsed = parse(url);
  return {
    origin: parsed.origin,
    path: `${parsed.pathname}${parsed.search}`,
    hostname: parsed.hostname,
    port: portOf(parsed),
    isTls: false,
    isNamed: true,
  };
}

export type OutboundErrorCode = 'blocked_address' | 'dns' | 'connect' | 'tls' | 'timeout' | 'protocol';

/**
 * `remoteAddress` is null if there was no connection, and `status` if the answer broke off before its status. The owner of the URL may read the
 * message.
 */
export class OutboundError extends Error {
  readonly code: OutboundErrorCode;
  readonly remoteAddress: string | null;
  readonly status: number | null;

  constructor(
    code: OutboundErrorCode,
    message: string,
    options: { remoteAddress?: string | null; status?: number | null; cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause });
    this.name = 'OutboundError';
    this.code = code;
    this.remoteAddress = options.remoteAddress ?? null;
    this.status = options.status ?? null;
  }
}

const UNSENT: readonly OutboundErrorCode[] = ['connect', 'dns', 'tls', 'blocked_address'];

/** Whether the error has ended its request before it reached the other side. */
export function isUnsent(error: unknown): error is OutboundError {
  return error instanceof OutboundError && UNSENT.includes(error.code);
}

/** The only allocated part of public IPv6. The rest embeds IPv4, is special or is unallocated. */
const GLOBAL_IPV6: [ipaddr.IPv6, number] = [ipaddr.IPv6.parse('2000::'), 3];
/** The metadata server of Azure. Its address is public, and it gives out the secrets of the machine that asks. */
const AZURE_WIRE_SERVER = '168.63.129.16';

function isPublic(address: ipaddr.IPv4 | ipaddr.IPv6): boolean {
  // "unicast" remains after all special ranges are excluded, including mapped and translated ones.
  if (address.range() !== 'unicast') return false;
  if (address instanceof ipaddr.IPv6) return address.match(GLOBAL_IPV6);
  return address.toString() !== AZURE_WIRE_SERVER;
}

/** The URL parser has normalised all spellings of an address: 127.1, 0x7f.1 and 2130706433 are all 127.0.0.1. */
function parse(url: string): URL {
  const parsed = URL.parse(url);
  if (parsed === null) throw blocked('must be a whole URL, like https://example.com/path');
  if (parsed.username !== '' || parsed.password !== '') throw blocked('must not hold a user name or password');
  return parsed;
}

function portOf(url: URL): number {
  if (url.port !== '') return Number(url.port);
  return url.protocol === 'https:' ? 443 : 80;
}

function blocked(rule: string): OutboundError {
  return new OutboundError('blocked_address', rule);
}
