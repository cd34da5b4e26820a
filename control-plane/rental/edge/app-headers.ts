// Headers that pass the proxy: headers of a single connection are removed, and clients cannot forge the origin of a request.
/** Name, value, name, value, ..., as Node reads and writes them. This keeps order, case and repetition. */
export type RawHeaders = string[];

/** Headers for the next hop only (RFC 9110, section 7.6.1). */
const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);
/** Headers that frame and address a request. `Connection` must not remove them, even if it names them. */
const FRAMING = new Set(['content-length', 'host']);
/** Headers that only the proxy may set. */
const FORWARDED = new Set([
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-forwarded-proto',
  'x-real-ip',
]);

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
  const dropped = new Set([...FORWARDED, ...connectionNames(raw), ...facts.without]);
  const kept = withoutCookie(
    keep(raw, (name) => !dropped.has(name) && !HOP_BY_HOP.has(name)),
    facts.withoutCookie,
  );
  const { upgrade, isChunked } = framing(raw);
  if (facts.isUpgrade && upgrade !== undefined) kept.push('Connection', 'Upgrade', 'Upgrade', upgrade);
  if (isChunked) kept.push('Transfer-Encoding', 'chunked');
  kept.push('X-Forwarded-For', facts.clientIp, 'X-Forwarded-Host', facts.host, 'X-Forwarded-Proto', 'https');
  return kept;
}

/** A response's headers as the client sees them. Cookies lose their domain, because neighbouring host names belong to other tenants. */
export function responseHeaders(raw: RawHeaders): RawHeaders {
  const dropped = connectionNames(raw);
  const kept = keep(raw, (name) => !dropped.has(name) && !HOP_BY_HOP.has(name));
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

function keep(raw: RawHeaders, wanted: (name: string) => boolean): RawHeaders {
  const kept: RawHeaders = [];
  for (const [name, value] of pairs(raw)) if (wanted(name.toLowerCase())) kept.push(name, value);
  return kept;
}

/** The headers that `Connection` names. They belong to this connection too. */
function connectionNames(raw: RawHeaders): Set<string> {
  const named = pairs(raw).filter(([name]) => name.toLowerCase() === 'connection');
  const names = new Set(named.flatMap(([, value]) => value.split(',').map((name) => name.trim().toLowerCase())));
  for (const name of FRAMING) names.delete(name);
  return names;
}

/** Node accepts a transfer coding only if the last one is chunked. */
function framing(raw: RawHeaders): { upgrade: string | undefined; isChunked: boolean } {
  const value = (wanted: string): string | undefined => pairs(raw).find(([name]) => name.toLowerCase() === wanted)?.[1];
  return { upgrade: value('upgrade'), isChunked: value('transfer-encoding') !== undefined };
}

function pairs(raw: RawHeaders): [string, string][] {
  return Array.from({ length: raw.length / 2 }, (_, index) => [raw[2 * index] ?? '', raw[2 * index + 1] ?? '']);
}
