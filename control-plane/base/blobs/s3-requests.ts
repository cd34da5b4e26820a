// Requests to a store that speaks S3: signed (SigV4), repeated if the store does not answer. A refusal is an error with the store's own code.
import { once } from 'node:events';
import { type ClientRequest, Agent as HttpAgent, type IncomingMessage, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { createHash, createHmac, createSecretKey, type KeyObject } from 'node:crypto';
import { text as readText } from 'node:stream/consumers';
import { AwsV4Signer } from 'aws4fetch';
import { XMLParser } from 'fast-xml-parser';
import type { Clock } from '../../../shared/clock.ts';
import { codeOf, messageOf } from '../../../shared/errors.ts';

export interface S3Settings {
  /** The origin of the store, like https://s3.example.com. */
  endpoint: string;
  region: string;
  bucket: string;
  /** The bucket is in the path (`<endpoint>/<bucket>/<object>`) and not in the host name. */
  pathStyle: boolean;
  accessKey: string;
  secretKey: string;
}

export interface S3Request {
  method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE';
  /** The key of the object; undefined for a request to the bucket. */
  object?: string;
  query?: Record<string, string>;
  headers?: Record<string, string>;
  body?: readonly Uint8Array[];
  signal?: AbortSignal;
}

export interface S3Answer {
  headers: IncomingMessage['headers'];
  /** The members of the root element. Empty if there is no XML. */
  xml: Record<string, unknown>;
}

/** The store has refused a request. `code` is the store's own word, like NoSuchKey. It is empty in an answer to HEAD. */
export class S3Refusal extends Error {
  readonly status: number;
  readonly code: string;

  constructor({ method, object }: S3Request, status: number, code: string) {
    super(`the store answered ${method} ${object ?? 'of the bucket'} with ${`${status} ${code}`.trim()}`);
    this.status = status;
    this.code = code;
  }
}

/** The store gave no answer, or broke it off. */
export class S3Silence extends Error {}

export interface S3Requests {
  /** Sends a request and reads the whole answer. @throws S3Refusal, S3Silence, and the reason of the signal */
  send(request: S3Request): Promise<S3Answer>;
  /** Sends a request and returns once its answer begins. @throws S3Refusal, S3Silence, and the reason of the signal */
  begin(request: S3Request): Promise<IncomingMessage>;
  /** The bytes of an answer. @throws S3Silence if the answer breaks off */
  bytesOf(answer: IncomingMessage): AsyncGenerator<Buffer>;
  /** A URL with the signature in its query. All headers of the request are signed, so whoever uses the URL must send them. */
  presign(request: S3Request, seconds: number): Promise<string>;
}

/** How often a request is sent at most. Every request of this room may be repeated. */
const ATTEMPTS_MAX = 4;
const FIRST_WAIT_MS = 100;
const REPEATED = [429, 500, 502, 503, 504];
/** The store counts as silent if no byte has moved for this long. */
const SILENT_MS = 30_000;

export function openS3Requests(settings: S3Settings, clock: Clock): S3Requests {
  const isPlain = settings.endpoint.startsWith('http:');
  const agent = isPlain ? new HttpAgent({ keepAlive: true }) : new HttpsAgent({ keepAlive: true });
  const signingKeyOf = openSigningKeys(settings.secretKey);

  const beginOnce = async (asked: S3Request): Promise<IncomingMessage> => {
    const { body = [], signal } = asked;
    const { url, method, headers } = await signed(asked, settings, clock.now());
    const options = { method, headers, agent, ...(signal === undefined ? {} : { signal }) };
    const request = isPlain ? httpRequest(url, options) : httpsRequest(url, options);
    const unwatch = watch(request, clock);
    try {
      // A store may refuse and disconnect before it has read the body.
      const begun = once(request, 'response') as Promise<[IncomingMessage]>;
      for (const piece of body) request.write(piece);
      request.end();
      const [answer] = await begun;
      request.on('error', () => undefined);
      return answer;
    } catch (error) {
      signal?.throwIfAborted();
      throw new S3Silence(`the store gave no answer (${codeOf(error) ?? messageOf(error)})`, { cause: error });
    } finally {
      unwatch();
    }
  };

  const bytesOf: S3Requests['bytesOf'] = async function* (answer) {
    const pieces = answer[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    try {
      for (;;) {
        const cancel = clock.after(SILENT_MS, () => answer.destroy(new Error('no byte has moved')));
        const next = await pieces.next().finally(cancel);
        if (next.done === true) return;
        yield next.value;
      }
    } catch (error) {
      throw new S3Silence(`the store broke its answer off (${codeOf(error) ?? messageOf(error)})`, { cause: error });
    } finally {
      answer.destroy();
    }
  };

  const acceptedOnce = async (asked: S3Request): Promise<IncomingMessage> => {
    const answer = await beginOnce(asked);
    const { statusCode: status = 0 } = answer;
    if (status < 300) return answer;
    const { xml } = await answerOf(answer, bytesOf).catch(() => ({ xml: {} }));
    throw new S3Refusal(asked, status, codeIn(xml));
  };

  return {
    begin: (asked) => repeated(asked, clock, () => acceptedOnce(asked)),
    send: (asked) =>
      repeated(asked, clock, async () => {
        const answer = await answerOf(await acceptedOnce(asked), bytesOf);
        // S3 may begin an answer with 200 before it knows the outcome.
        if ('Code' in answer.xml) throw new S3Refusal(asked, 500, codeIn(answer.xml));
        return answer;
      }),
    bytesOf,
    presign: async (asked, seconds) => {
      const query = { ...asked.query, 'X-Amz-Expires': String(seconds) };
      const signer = signerOf({ ...asked, query }, settings, clock.now(), { signQuery: true, allHeaders: true });
      const signature = await signatureOf(signer, signingKeyOf(signer.credentialString));
      // URLSearchParams writes a plus sign for a space. Some stores do not read it as a space.
      return `${signer.url.href.replaceAll('+', '%20')}&X-Amz-Signature=${signature}`;
    },
  };
}

async function repeated<T>({ signal }: S3Request, clock: Clock, attempt: () => Promise<T>): Promise<T> {
  for (let failed = 1; ; failed += 1) {
    try {
      return await attempt();
    } catch (error) {
      const isPassing = error instanceof S3Silence || (error instanceof S3Refusal && REPEATED.includes(error.status));
      if (!isPassing || failed === ATTEMPTS_MAX) throw error;
      await clock.sleep(FIRST_WAIT_MS * 4 ** (failed - 1), signal);
      signal?.throwIfAborted();
    }
  }
}

/** Ends the request if no byte has moved for a while. The returned function stops that. */
function watch(request: ClientRequest, clock: Clock): () => void {
  const moved = (): number => (request.socket?.bytesWritten ?? 0) + (request.socket?.bytesRead ?? 0);
  let cancel = (): void => undefined;
  const check = (before: number): void => {
    cancel = clock.after(SILENT_MS, () => {
      const now = moved();
      if (now === before) request.destroy(new Error('no byte has moved'));
      else check(now);
    });
  };
  check(moved());
  return () => cancel();
}

/** The longest list of S3 has a thousand keys of 1,024 ampersands, each written as `&amp;`, and 700 bytes more for each key. */
const XML_BYTES_MAX = 6 * 1024 ** 2;
/** The time that XML takes depends on its tags. An element of such a list has at most fifteen elements, with two tags each. */
const XML_TAGS_MAX = 40_000;

async function answerOf(answer: IncomingMessage, bytesOf: S3Requests['bytesOf']): Promise<S3Answer> {
  const bounded = async function* (): AsyncGenerator<Buffer> {
    let bytes = 0;
    for await (const piece of bytesOf(answer)) {
      bytes += piece.length;
      if (bytes > XML_BYTES_MAX) throw new S3Silence(`the answer of the store is longer than ${XML_BYTES_MAX} bytes`);
      yield piece;
    }
  };
  const body = await readText(bounded());
  if (hasManyTags(body)) throw new S3Silence(`the answer of the store has more than ${XML_TAGS_MAX} tags`);
  return { headers: answer.headers, xml: body.trimStart().startsWith('<') ? rootOf(body) : {} };
}

function hasManyTags(body: string): boolean {
  let count = 0;
  for (let at = body.indexOf('<'); at !== -1 && count <= XML_TAGS_MAX; at = body.indexOf('<', at + 1)) count += 1;
  return count > XML_TAGS_MAX;
}

/** Names of XML elements that may come several times, once, or never. */
const LISTS = ['Contents', 'Upload'];

function rootOf(body: string): Record<string, unknown> {
  const parser = new XMLParser({
    ignoreDeclaration: true,
    parseTagValue: false,
    isArray: (name) => LISTS.includes(name),
  });
  const [root] = Object.values(parser.parse(body) as Record<string, unknown>);
  return typeof root === 'object' && root !== null ? { ...root } : {};
}

function codeIn(xml: Record<string, unknown>): string {
  return typeof xml['Code'] === 'string' ? xml['Code'] : '';
}

async function signed(
  asked: S3Request,
  settings: S3Settings,
  nowMs: number,
): Promise<{ url: URL; method: string; headers: Record<string, string> }> {
  const { body = [] } = asked;
  const hash = createHash('sha256');
  for (const piece of body) hash.update(piece);
  const bytes = body.reduce((sum, piece) => sum + piece.length, 0);
  const headers = { ...asked.headers, 'x-amz-content-sha256': hash.digest('hex') };
  const { url, method, headers: made } = await signerOf({ ...asked, headers }, settings, nowMs).sign();
  const hasLength = method === 'PUT' || method === 'POST';
  return {
    url,
    method,
    headers: { ...Object.fromEntries(made), ...(hasLength ? { 'content-length': String(bytes) } : {}) },
  };
}

/** The signature of the signer's request. The signer's own way takes seven asynchronous steps, and a page of jobs shows thousands of URLs. */
async function signatureOf(signer: AwsV4Signer, key: KeyObject): Promise<string> {
  const { datetime, credentialString: scope } = signer;
  const canonical = createHash('sha256')
    .update(await signer.canonicalString())
    .digest('hex');
  return hmac(key, ['AWS4-HMAC-SHA256', datetime, scope, canonical].join('\n')).toString('hex');
}

/** The key that signs in a scope (day, region and service). All signatures of a day have the same, and it takes longer to derive than to use. */
function openSigningKeys(secretKey: string): (scope: string) => KeyObject {
  let last: { scope: string; key: KeyObject } | undefined;
  return (scope) => {
    if (last?.scope !== scope) {
      const [day = '', ...others] = scope.split('/');
      last = { scope, key: createSecretKey(others.reduce<Buffer>(hmac, hmac(`AWS4${secretKey}`, day))) };
    }
    return last.key;
  };
}

function hmac(key: string | Buffer | KeyObject, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

function signerOf(
  { method, object = '', query = {}, headers = {} }: S3Request,
  { endpoint, region, bucket, pathStyle, accessKey, secretKey }: S3Settings,
  nowMs: number,
  options: { signQuery?: boolean; allHeaders?: boolean } = {},
): AwsV4Signer {
  const url = new URL(endpoint);
  if (!pathStyle) url.hostname = `${bucket}.${url.hostname}`;
  url.pathname = pathStyle ? `/${bucket}/${object}` : `/${object}`;
  // One parameter after the other would make the whole URL anew for each.
  url.search = new URLSearchParams(query).toString();
  return new AwsV4Signer({
    method,
    url: url.href,
    headers,
    accessKeyId: accessKey,
    secretAccessKey: secretKey,
    service: 's3',
    region,
    datetime: new Date(nowMs).toISOString().replaceAll(/[:-]|\.\d{3}/g, ''),
    ...options,
  });
}
