// Headers that go on to the next hop. Others belong to one connection, and must not be passed on (RFC 9110, section 7.6.1).

/** Name, value, name, value, ..., as Node reads and writes them. This keeps order, case and repetition. */
export type RawHeaders = string[];

const HOP_BY_HOP: ReadonlySet<string> = new Set([
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
const FRAMING: ReadonlySet<string> = new Set(['content-length', 'host']);

/** Headers that a proxy sets. Whoever gets them from a proxy believes them, so those of a client must not pass. */
export const FORWARDED: readonly string[] = [
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-forwarded-proto',
  'x-real-ip',
];

/** Without the headers of this connection, those that `Connection` names, and `dropped`, whose names are in lower case. */
export function endToEnd(raw: RawHeaders, dropped: readonly string[] = []): RawHeaders {
  const all = pairs(raw);
  const without = new Set([...dropped, ...all.flatMap(namesOfConnection)]);
  return all.filter(([name]) => !HOP_BY_HOP.has(name.toLowerCase()) && !without.has(name.toLowerCase())).flat();
}

function namesOfConnection([name, value]: [string, string]): string[] {
  if (name.toLowerCase() !== 'connection') return [];
  const names = value.split(',').map((each) => each.trim().toLowerCase());
  return names.filter((each) => !FRAMING.has(each));
}

/** The headers as pairs of name and value. */
export function pairs(raw: RawHeaders): [string, string][] {
  return Array.from({ length: raw.length / 2 }, (_, index) => [raw[2 * index] ?? '', raw[2 * index + 1] ?? '']);
}
