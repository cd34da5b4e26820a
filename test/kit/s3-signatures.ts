// Verifies signatures of S3 requests (AWS Signature Version 4) as the store does. It shares no code with the library that signs them.
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';

export interface S3Keys {
  accessKey: string;
  secretKey: string;
  region: string;
}

export interface RawRequest {
  method: string;
  /** Path and query as they came. */
  target: string;
  /** The names are in lower case. */
  headers: Record<string, string>;
}

export interface Refused {
  status: number;
  code: string;
}

interface Claim {
  accessKey: string;
  scope: string[];
  signedHeaders: string[];
  signature: string;
  datetime: string;
  payloadHash: string;
  /** The query without the signature. */
  query: [string, string][];
  /** Only a presigned URL has it. */
  seconds?: number;
}

const ALGORITHM = 'AWS4-HMAC-SHA256';
const SKEW_MS_MAX = 15 * 60_000;
const PRESIGNED_SECONDS_MAX = 7 * 86_400;

/** Undefined if the request is signed by these keys and valid now. `body` is what was received. */
export function refusalOf(request: RawRequest, body: Buffer, keys: S3Keys, nowMs: number): Refused | undefined {
  const claim = claimOf(request);
  if (claim === undefined) return denied('AccessDenied');
  const { accessKey, scope, signature, signedHeaders, payloadHash } = claim;
  if (accessKey !== keys.accessKey) return denied('InvalidAccessKeyId');
  const [date, ...rest] = scope;
  if (date !== claim.datetime.slice(0, 8) || rest.join('/') !== `${keys.region}/s3/aws4_request`)
    return { status: 400, code: 'AuthorizationHeaderMalformed' };
  const mustBeSigned = Object.keys(request.headers).filter((name) => name === 'host' || name.startsWith('x-amz-'));
  if (mustBeSigned.some((name) => !signedHeaders.includes(name))) return denied('AccessDenied');
  const refusal = refusedTime(claim, nowMs);
  if (refusal !== undefined) return refusal;
  const right = Buffer.from(signatureOf(request, claim, keys));
  const given = Buffer.from(signature);
  if (given.length !== right.length || !timingSafeEqual(given, right)) return denied('SignatureDoesNotMatch');
  const isRightBody = payloadHash === 'UNSIGNED-PAYLOAD' || payloadHash === sha256(body);
  return isRightBody ? undefined : { status: 400, code: 'XAmzContentSHA256Mismatch' };
}

function claimOf(request: RawRequest): Claim | undefined {
  const query = queryOf(request.target);
  const parameters = new Map(query);
  if (parameters.has('X-Amz-Algorithm')) {
    const [accessKey = '', ...scope] = (parameters.get('X-Amz-Credential') ?? '').split('/');
    return {
      accessKey,
      scope,
      signedHeaders: (parameters.get('X-Amz-SignedHeaders') ?? '').split(';'),
      signature: parameters.get('X-Amz-Signature') ?? '',
      datetime: parameters.get('X-Amz-Date') ?? '',
      payloadHash: request.headers['x-amz-content-sha256'] ?? 'UNSIGNED-PAYLOAD',
      query: query.filter(([name]) => name !== 'X-Amz-Signature'),
      seconds: Number(parameters.get('X-Amz-Expires')),
    };
  }
  const header = /^AWS4-HMAC-SHA256 Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})$/;
  const [, credential = '', names = '', signature] = header.exec(request.headers['authorization'] ?? '') ?? [];
  const { 'x-amz-date': datetime, 'x-amz-content-sha256': payloadHash } = request.headers;
  if (signature === undefined || datetime === undefined || payloadHash === undefined) return undefined;
  const [accessKey = '', ...scope] = credential.split('/');
  return { accessKey, scope, signedHeaders: names.split(';'), signature, datetime, payloadHash, query };
}

function refusedTime({ datetime, seconds }: Claim, nowMs: number): Refused | undefined {
  const [, year, month, day, hours, minutes, second] = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(datetime) ?? [];
  const atMs = Date.parse(`${year}-${month}-${day}T${hours}:${minutes}:${second}Z`);
  if (Number.isNaN(atMs)) return denied('AccessDenied');
  if (seconds === undefined) return Math.abs(nowMs - atMs) > SKEW_MS_MAX ? denied('RequestTimeTooSkewed') : undefined;
  if (!(seconds >= 1 && seconds <= PRESIGNED_SECONDS_MAX))
    return { status: 400, code: 'AuthorizationQueryParametersError' };
  return nowMs >= atMs + seconds * 1000 ? denied('AccessDenied') : undefined;
}

type Signed = Pick<Claim, 'signedHeaders' | 'datetime' | 'payloadHash' | 'query' | 'scope'>;

function signatureOf({ method, target, headers }: RawRequest, claim: Signed, { secretKey }: S3Keys): string {
  const { signedHeaders, datetime, payloadHash, query, scope } = claim;
  const [path = ''] = target.split('?', 1);
  const canonical = [
    method,
    decodeURIComponent(path).split('/').map(encoded).join('/'),
    query
      .map(([name, value]) => `${encoded(name)}=${encoded(value)}`)
      .toSorted()
      .join('&'),
    ...signedHeaders.map((name) => `${name}:${(headers[name] ?? '').trim().replaceAll(/ +/g, ' ')}`),
    '',
    signedHeaders.join(';'),
    payloadHash,
  ].join('\n');
  const text = [ALGORITHM, datetime, scope.join('/'), sha256(Buffer.from(canonical))].join('\n');
  const key = scope.reduce<Buffer>((before, part) => hmac(before, part), Buffer.from(`AWS4${secretKey}`));
  return hmac(key, text).toString('hex');
}

/** The pairs of the query. A plus sign is a plus sign, as in a strict store. */
export function queryOf(target: string): [string, string][] {
  const [, query = ''] = target.split('?', 2);
  return query
    .split('&')
    .filter(Boolean)
    .map((pair) => {
      const [name = '', ...value] = pair.split('=');
      return [decodeURIComponent(name), decodeURIComponent(value.join('='))];
    });
}

function encoded(text: string): string {
  return [...Buffer.from(text)]
    .map((byte) => {
      const sign = String.fromCharCode(byte);
      return /[A-Za-z0-9\-._~]/.test(sign) ? sign : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
    })
    .join('');
}

const hmac = (key: Buffer, text: string): Buffer => createHmac('sha256', key).update(text).digest();
const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
const denied = (code: string): Refused => ({ status: 403, code });
