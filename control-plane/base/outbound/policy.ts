// Which URLs and which addresses may be called, as pure rules over what the operator allows.
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import { OutboundError } from './outbound-error.ts';

export interface OutboundPolicy {
  ports: readonly number[] | 'any';
  /** CIDR networks that may be called although they are not public. */
  privateNetworks: readonly string[];
  /** `host` (any port) or `host:port` that the operator has named: any address, and plain http where `plainHttp`. */
  namedHosts: readonly { host: string; plainHttp: boolean }[];
}

/** A URL that may be called, as far as can be said before its name is resolved. */
export interface Target {
  origin: string;
  /** Path and query. */
  path: string;
  /** Without the brackets of an IPv6 address. */
  hostname: string;
  port: number;
  isTls: boolean;
  /** The operator has named this host: its addresses are not judged. */
  isNamed: boolean;
}

export interface Policy {
  /** @throws OutboundError blocked_address for a URL that no attempt would be allowed to */
  target(url: string): Target;
  /** Whether this address may be connected to for `target`. */
  allows(target: Target, address: string): boolean;
}

/** @throws Error for a network that is no CIDR range */
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

/** The only part of IPv6 that addresses on the internet come from. The rest embeds IPv4, is special, or is not given out. */
const GLOBAL_IPV6: [ipaddr.IPv6, number] = [ipaddr.IPv6.parse('2000::'), 3];
/** Looks public and is not: the wire server of Azure, which tells the secrets of the machine that asks. */
const AZURE_WIRE_SERVER = '168.63.129.16';

function isPublic(address: ipaddr.IPv4 | ipaddr.IPv6): boolean {
  // "unicast" is what is left when every special range, mapped and translated ones too, has been taken out.
  if (address.range() !== 'unicast') return false;
  if (address instanceof ipaddr.IPv6) return address.match(GLOBAL_IPV6);
  return address.toString() !== AZURE_WIRE_SERVER;
}

/** The URL parser has made one spelling of each address by then: 127.1, 0x7f.1 and 2130706433 are all 127.0.0.1. */
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
