// The S3 server of the tests verifies signatures as Amazon does: the examples that Amazon has published pass, and an altered one is refused.
import { describe, expect, test } from 'vitest';
import { type RawRequest, refusalOf } from './s3-signatures.ts';

const KEYS = {
  accessKey: 'AKIAIOSFODNN7EXAMPLE',
  secretKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY',
  region: 'us-east-1',
};
const SCOPE = `${KEYS.accessKey}/20130524/us-east-1/s3/aws4_request`;
const AT_MS = Date.UTC(2013, 4, 24);
const EMPTY = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

const signed = (method: string, target: string, own: Record<string, string>, signature: string): RawRequest => {
  const headers: Record<string, string> = {
    host: 'examplebucket.s3.amazonaws.com',
    'x-amz-date': '20130524T000000Z',
    'x-amz-content-sha256': EMPTY,
    ...own,
  };
  const names = Object.keys(headers).toSorted().join(';');
  const authorization = `AWS4-HMAC-SHA256 Credential=${SCOPE},SignedHeaders=${names},Signature=${signature}`;
  return { method, target, headers: { ...headers, authorization } };
};

const TEXT = Buffer.from('Welcome to Amazon S3.');
const PUT = signed(
  'PUT',
  '/test%24file.text',
  {
    date: 'Fri, 24 May 2013 00:00:00 GMT',
    'x-amz-storage-class': 'REDUCED_REDUNDANCY',
    'x-amz-content-sha256': '44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072',
  },
  '98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd',
);
const PRESIGNED: RawRequest = {
  method: 'GET',
  target: `/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=${encodeURIComponent(SCOPE)}&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404`,
  headers: { host: 'examplebucket.s3.amazonaws.com' },
};

describe('an example of Amazon', () => {
  test.each<[string, RawRequest, Buffer]>([
    [
      'GET object with a range',
      signed(
        'GET',
        '/test.txt',
        { range: 'bytes=0-9' },
        'f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41',
      ),
      Buffer.alloc(0),
    ],
    ['PUT object', PUT, TEXT],
    [
      'GET bucket lifecycle',
      signed('GET', '/?lifecycle', {}, 'fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543'),
      Buffer.alloc(0),
    ],
    [
      'list of objects',
      signed('GET', '/?max-keys=2&prefix=J', {}, '34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7'),
      Buffer.alloc(0),
    ],
    ['presigned URL', PRESIGNED, Buffer.alloc(0)],
  ])('passes: %s', (_what, request, body) => {
    expect(refusalOf(request, body, KEYS, AT_MS)).toBeUndefined();
  });

  test('is refused with another body, path, method, header, key or secret', () => {
    const code = (request: Partial<RawRequest>, body = TEXT, keys = KEYS): string | undefined =>
      refusalOf({ ...PUT, ...request }, body, keys, AT_MS)?.code;
    expect(code({}, Buffer.from('welcome'))).toBe('XAmzContentSHA256Mismatch');
    expect(code({ target: '/test%24file.txt' })).toBe('SignatureDoesNotMatch');
    expect(code({ method: 'DELETE' })).toBe('SignatureDoesNotMatch');
    expect(code({ headers: { ...PUT.headers, 'x-amz-storage-class': 'STANDARD' } })).toBe('SignatureDoesNotMatch');
    expect(code({ headers: { ...PUT.headers, 'x-amz-acl': 'public-read' } })).toBe('AccessDenied');
    expect(code({}, TEXT, { ...KEYS, secretKey: 'another' })).toBe('SignatureDoesNotMatch');
    expect(code({}, TEXT, { ...KEYS, accessKey: 'another' })).toBe('InvalidAccessKeyId');
    expect(code({}, TEXT, { ...KEYS, region: 'eu-central-1' })).toBe('AuthorizationHeaderMalformed');
    expect(code({ headers: { host: 'examplebucket.s3.amazonaws.com' } })).toBe('AccessDenied');
  });

  test('is refused at the wrong time: a presigned URL after its seconds, a request a quarter of an hour off', () => {
    const at = (request: RawRequest, body: Buffer, ms: number) => refusalOf(request, body, KEYS, AT_MS + ms)?.code;
    const dayMs = 86_400_000;
    expect(at(PRESIGNED, Buffer.alloc(0), dayMs - 1)).toBeUndefined();
    expect(at(PRESIGNED, Buffer.alloc(0), dayMs)).toBe('AccessDenied');
    expect(at(PUT, TEXT, 15 * 60_000)).toBeUndefined();
    expect(at(PUT, TEXT, 15 * 60_000 + 1)).toBe('RequestTimeTooSkewed');
    expect(at(PUT, TEXT, -15 * 60_000 - 1)).toBe('RequestTimeTooSkewed');
  });
});
