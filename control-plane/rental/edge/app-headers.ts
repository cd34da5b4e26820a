// Headers that pass the proxy: headers of a single connection are removed, and clients cannot forge the origin of a request.
import { endToEnd, FORWARDED, pairs, type RawHeaders } from '../../base/http/hop-headers.ts';

export interface RequestFacts {
  clientIp: string;
  host: string;
  /** The headers that carry the login. The application must not see them. */
  without: readonly string[];
  /** The name of our own cookie. The application must not see this cookie. */
  withoutCookie: string;
  isUpgrade: boolean;
}

/** A request's headers as the application sees them. */
export function requestHeaders(raw: RawHeaders, facts: RequestFacts): RawHeaders {
  const forged = pairs(raw).flatMap(([name]) => (isForwarded(name) ? [name.toLowerCase()] : []));
  const kept = withoutCookie(endToEnd(raw, [...forged, ...facts.without]), facts.withoutCookie);
  const { upgrade, isChunked } = framing(raw);
  if (facts.isUpgrade && upgrade !== undefined) kept.push('Connection', 'Upgrade', 'Upgrade', upgrade);
  if (isChunked) kept.push('Transfer-Encoding', 'chunked');
  kept.push('X-Forwarded-For', facts.clientIp, 'X-Forwarded-Host', facts.host, 'X-Forwarded-Proto', 'https');
  return kept;
}

/** CGI, WSGI and PHP show an application `X_Forwarded_For` under the same name as `X-Forwarded-For`. */
function isForwarded(name: string): boolean {
  const plain = name.toLowerCase().replaceAll('_', '-');
  return FORWARDED.includes(plain) || plain.startsWith('x-forwarded-');
}

/** A response's headers as the client sees them. Cookies lose their domain, because neighbouring host names belong to other tenants. */
export function responseHeaders(raw: RawHeaders): RawHeaders {
  const kept = endToEnd(raw);
  return kept.map((text, index) => {
    const isCookie = index % 2 === 1 && kept[index - 1]?.toLowerCase() === 'set-cookie';
    return isCookie ? withoutDomain(text) : text;
  });
}

/** Reads a Set-Cookie as clients do (RFC 6265, section 5.2): semicolons separate attributes, and a name ends at the first `=`. */
function withoutDomain(setCookie: string): string {
  const [pair = '', ...attributes] = setCookie.split(';');
  const kept = attributes.filter((attribute) => attribute.split('=', 1)[0]?.trim().toLowerCase() !== 'domain');
  return [pair, ...kept].join(';');
}

function withoutCookie(raw: RawHeaders, ours: string): RawHeaders {
  return pairs(raw).flatMap(([name, value]) => {
    if (name.toLowerCase() !== 'cookie' || !value.includes(ours)) return [name, value];
    const others = value.split(';').filter((one) => !one.trim().startsWith(`${ours}=`));
    return others.length === 0 ? [] : [name, others.join(';').trim()];
  });
}

/** Node accepts a transfer coding only if the last one is chunked. */
function framing(raw: RawHeaders): { upgrade: string | undefined; isChunked: boolean } {
  const value = (wanted: string): string | undefined => pairs(raw).find(([name]) => name.toLowerCase() === wanted)?.[1];
  return { upgrade: value('upgrade'), isChunked: value('transfer-encoding') !== undefined };
}
