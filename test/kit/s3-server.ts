// A small strict S3 server in memory: it verifies every signature, enforces the rules of multipart uploads, and fails when a test says so.
import { createHash, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import type { S3Settings } from '../../control-plane/base/blobs/s3-requests.ts';
import type { Clock } from '../../shared/clock.ts';
import { queryOf, refusalOf, type Refused } from './s3-signatures.ts';

export interface S3Call {
  method: string;
  /** Empty for a request to the bucket. */
  object: string;
  query: ReadonlyMap<string, string>;
  headers: Record<string, string>;
  body: Buffer;
}

/**
 * `lost`: the work is done, but the connection ends without an answer. `silent`: nothing ever comes. `cutAfter`: the answer breaks off after
 * this number of bytes of its body.
 */
export type S3Fault = Refused | 'lost' | 'silent' | { cutAfter: number };

export interface S3Server {
  /** The settings with which a client reaches it. */
  settings: S3Settings;
  /** The objects by their keys. */
  objects: Map<string, StoredObject>;
  /** Unfinished uploads by their ids. */
  uploads: Map<string, OpenUpload>;
  /** Each call as `PUT files/x?partNumber=1`. */
  calls: string[];
  /** What goes wrong with a call. A test sets it. */
  fault(call: S3Call): S3Fault | undefined;
  close(): Promise<void>;
}

interface StoredObject {
  body: Buffer;
  etag: string;
  meta: Record<string, string>;
  modifiedMs: number;
}

interface OpenUpload {
  object: string;
  meta: Record<string, string>;
  initiatedMs: number;
  parts: Map<number, { body: Buffer; etag: string }>;
}

interface Answer {
  status: number;
  headers?: Record<string, string>;
  body?: Buffer | string;
}

const BUCKET = 'blobs';
const KEYS = { accessKey: 'AKTEST', secretKey: 'a/secret+key', region: 'test-1' };
const PART_BYTES_MIN = 5 * 1024 ** 2;

/** `pageMax` is the number of entries on a page of a list. */
export async function startS3Server(clock: Pick<Clock, 'now'>, { pageMax = 1000 } = {}): Promise<S3Server> {
  const objects: S3Server['objects'] = new Map();
  const uploads: S3Server['uploads'] = new Map();
  const store: Store = { objects, uploads, clock, pageMax };
  const server = createServer((request, response) => void serve(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await buffer(request).catch(() => undefined);
    if (body === undefined) return;
    const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
    const target = request.url ?? '';
    const raw = { method: request.method ?? '', target, headers };
    const [, bucket, object = ''] = /^\/([^/]*)\/?(.*)$/.exec(decodeURIComponent(target.split('?', 1)[0] ?? '')) ?? [];
    const call = { method: raw.method, object, query: new Map(queryOf(target)), headers, body };
    made.calls.push(`${raw.method} ${object}${target.includes('?') ? `?${target.split('?')[1]}` : ''}`);
    const fault = made.fault(call);
    const refused =
      refusalOf(raw, body, KEYS, clock.now()) ??
      (bucket === BUCKET ? undefined : { status: 404, code: 'NoSuchBucket' }) ??
      (typeof fault === 'object' && 'code' in fault ? fault : undefined);
    if (fault === 'silent') return;
    const answer = refused === undefined ? answerTo(call, store) : refusal(refused);
    if (fault === 'lost') return void response.destroy();
    send(response, call, answer, typeof fault === 'object' && 'cutAfter' in fault ? fault.cutAfter : undefined);
  };
  const { port } = server.address() as AddressInfo;
  const made: S3Server = {
    settings: { endpoint: `http://127.0.0.1:${port}`, bucket: BUCKET, pathStyle: true, ...KEYS },
    objects,
    uploads,
    calls: [],
    fault: () => undefined,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  return made;
}

interface Store extends Pick<S3Server, 'objects' | 'uploads'> {
  clock: Pick<Clock, 'now'>;
  pageMax: number;
}

function send(response: ServerResponse, { method }: S3Call, answer: Answer, cutAfter: number | undefined): void {
  const body = Buffer.from(answer.body ?? '');
  response.writeHead(answer.status, { 'content-length': String(body.length), ...answer.headers });
  if (method === 'HEAD') return void response.end();
  if (cutAfter === undefined) return void response.end(body);
  response.write(body.subarray(0, cutAfter), () => response.destroy());
}

function answerTo(call: S3Call, store: Store): Answer {
  const { method, object, query } = call;
  if (object === '') return query.has('uploads') ? listUploads(store, query) : listObjects(store, query);
  if (method === 'POST' && query.has('uploads')) return begin(call, store);
  if (query.has('uploadId')) return onUpload(call, store);
  if (method === 'PUT') return put(call, store);
  if (method === 'DELETE') {
    store.objects.delete(object);
    return { status: 204 };
  }
  return read(call, store);
}

function put(call: S3Call, { objects, clock }: Store): Answer {
  const { object, headers, body } = call;
  if (headers['if-none-match'] === '*' && objects.has(object)) return refusal(EXISTS);
  const etag = md5(body);
  objects.set(object, { body, etag, meta: metaOf(call), modifiedMs: clock.now() });
  return { status: 200, headers: { etag } };
}

function read({ method, object, query, headers }: S3Call, { objects }: Store): Answer {
  const found = objects.get(object);
  if (found === undefined) return refusal({ status: 404, code: 'NoSuchKey' });
  const { body, etag, meta } = found;
  if (headers['if-match'] !== undefined && headers['if-match'] !== etag)
    return refusal({ status: 412, code: 'PreconditionFailed' });
  const overrides = [...query].flatMap(([name, value]) =>
    name.startsWith('response-') ? [[name.slice('response-'.length), value]] : [],
  );
  const common = { etag, 'accept-ranges': 'bytes', ...meta, ...(Object.fromEntries(overrides) as object) };
  if (method === 'HEAD') return { status: 200, headers: { ...common, 'content-length': String(body.length) } };
  const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(headers['range'] ?? '') ?? [];
  if (from === undefined) return { status: 200, headers: common, body };
  const last = Math.min(to === '' ? Infinity : Number(to), body.length - 1);
  if (Number(from) > last) return refusal({ status: 416, code: 'InvalidRange' });
  const range = `bytes ${from}-${last}/${body.length}`;
  return { status: 206, headers: { ...common, 'content-range': range }, body: body.subarray(Number(from), last + 1) };
}

function begin(call: S3Call, { uploads, clock }: Store): Answer {
  const id = randomUUID();
  const { object } = call;
  uploads.set(id, { object, meta: metaOf(call), initiatedMs: clock.now(), parts: new Map() });
  const xml = `<Bucket>${BUCKET}</Bucket><Key>${object}</Key><UploadId>${id}</UploadId>`;
  return { status: 200, body: `${XML}<InitiateMultipartUploadResult>${xml}</InitiateMultipartUploadResult>` };
}

function onUpload(call: S3Call, store: Store): Answer {
  const { method, object, query, body } = call;
  const id = query.get('uploadId') ?? '';
  const upload = store.uploads.get(id);
  if (upload?.object !== object) return refusal({ status: 404, code: 'NoSuchUpload' });
  if (method === 'DELETE') {
    store.uploads.delete(id);
    return { status: 204 };
  }
  if (method === 'POST') return complete(call, { id, upload }, store);
  const etag = md5(body);
  upload.parts.set(Number(query.get('partNumber')), { body, etag });
  return { status: 200, headers: { etag } };
}

function complete(
  { object, headers, body }: S3Call,
  { id, upload }: { id: string; upload: OpenUpload },
  { objects, uploads }: Store,
): Answer {
  if (headers['if-none-match'] === '*' && objects.has(object)) return refusal(EXISTS);
  const named = [...body.toString().matchAll(/<PartNumber>(\d+)<\/PartNumber><ETag>("[0-9a-f]+")<\/ETag>/g)];
  const numbers = named.map(([, number]) => Number(number));
  if (numbers.some((number, i) => number <= (numbers[i - 1] ?? 0)))
    return refusal({ status: 400, code: 'InvalidPartOrder' });
  const parts = named.map(([, number, etag]) => {
    const part = upload.parts.get(Number(number));
    return part?.etag === etag ? part : undefined;
  });
  if (parts.length === 0 || parts.includes(undefined)) return refusal({ status: 400, code: 'InvalidPart' });
  const bodies = parts.map((part) => part?.body ?? Buffer.alloc(0));
  if (bodies.slice(0, -1).some(({ length }) => length < PART_BYTES_MIN))
    return refusal({ status: 400, code: 'EntityTooSmall' });
  const whole = Buffer.concat(bodies);
  // Like Amazon's, the time of an object that was uploaded in parts is that of its begin.
  objects.set(object, { body: whole, etag: md5(whole), meta: upload.meta, modifiedMs: upload.initiatedMs });
  uploads.delete(id);
  return {
    status: 200,
    body: `${XML}<CompleteMultipartUploadResult><Key>${object}</Key></CompleteMultipartUploadResult>`,
  };
}

function listObjects({ objects, pageMax }: Store, query: ReadonlyMap<string, string>): Answer {
  const [prefix, token = ''] = [query.get('prefix') ?? '', query.get('continuation-token')];
  const after = Buffer.from(token, 'base64').toString();
  const keys = [...objects.keys()].filter((key) => key.startsWith(prefix) && key > after).toSorted();
  const contents = keys.slice(0, pageMax).map((key) => {
    const at = new Date(objects.get(key)?.modifiedMs ?? 0).toISOString();
    return `<Contents><Key>${key}</Key><LastModified>${at}</LastModified></Contents>`;
  });
  const isLast = keys.length <= pageMax;
  const next = Buffer.from(keys[pageMax - 1] ?? '').toString('base64');
  const more = isLast ? '' : `<NextContinuationToken>${next}</NextContinuationToken>`;
  const xml = `<IsTruncated>${!isLast}</IsTruncated>${more}${contents.join('')}`;
  return { status: 200, body: `${XML}<ListBucketResult>${xml}</ListBucketResult>` };
}

function listUploads({ uploads, pageMax }: Store, query: ReadonlyMap<string, string>): Answer {
  const after = query.get('upload-id-marker') ?? '';
  const ids = [...uploads.keys()].toSorted().filter((id) => id > after);
  const entries = ids.slice(0, pageMax).map((id) => {
    const { object = '', initiatedMs = 0 } = uploads.get(id) ?? {};
    const at = new Date(initiatedMs).toISOString();
    return `<Upload><Key>${object}</Key><UploadId>${id}</UploadId><Initiated>${at}</Initiated></Upload>`;
  });
  const isLast = ids.length <= pageMax;
  const last = ids[pageMax - 1] ?? '';
  const more = `<NextKeyMarker>${uploads.get(last)?.object}</NextKeyMarker><NextUploadIdMarker>${last}</NextUploadIdMarker>`;
  const xml = `<IsTruncated>${!isLast}</IsTruncated>${isLast ? '' : more}${entries.join('')}`;
  return { status: 200, body: `${XML}<ListMultipartUploadsResult>${xml}</ListMultipartUploadsResult>` };
}

const XML = '<?xml version="1.0" encoding="UTF-8"?>\n';
const EXISTS: Refused = { status: 412, code: 'PreconditionFailed' };

function refusal({ status, code }: Refused): Answer {
  return { status, body: `${XML}<Error><Code>${code}</Code><Message>no</Message></Error>` };
}

function metaOf({ headers }: S3Call): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('x-amz-meta-')));
}

function md5(body: Buffer): string {
  return `"${createHash('md5').update(body).digest('hex')}"`;
}
