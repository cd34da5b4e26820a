// The signatures of URLs for a store that speaks S3 are those of the library, on every day.
import { AwsV4Signer } from 'aws4fetch';
import { expect, test } from 'vitest';
import { openS3Requests, type S3Request } from '../../../../control-plane/base/blobs/s3-requests.ts';
import { systemClock } from '../../../../shared/clock.ts';

const DAY_MS = 86_400_000;
const SETTINGS = { region: 'eu', bucket: 'blobs', accessKey: 'AKIA', secretKey: 'the secret' };
const GET: S3Request = {
  method: 'GET',
  object: 'files/files-blob_1',
  query: { 'response-content-disposition': `attachment; filename="a+b & c~(1).txt"; filename*=UTF-8''gr%C3%B6%C3%9Fe` },
};
const PUT: S3Request = {
  method: 'PUT',
  object: 'files/files-blob_2',
  headers: { 'if-none-match': '*', 'content-length': '10' },
};

/** The URL as the library signs it, which takes the URL without the parameters of the signature. */
async function signedByLibrary(url: string, { method, headers = {} }: S3Request): Promise<string> {
  const asked = new URL(url);
  const datetime = asked.searchParams.get('X-Amz-Date') ?? '';
  for (const name of ['Date', 'Algorithm', 'Credential', 'SignedHeaders', 'Signature'])
    asked.searchParams.delete(`X-Amz-${name}`);
  const { region, accessKey: accessKeyId, secretKey: secretAccessKey } = SETTINGS;
  const how = { service: 's3', signQuery: true, allHeaders: true, datetime, region, accessKeyId, secretAccessKey };
  const signed = await new AwsV4Signer({ method, headers, url: asked.href, ...how }).sign();
  return signed.url.href.replaceAll('+', '%20');
}

test.each([true, false])('URLs are signed with the key of their day (the bucket is in the path: %s)', async (path) => {
  let nowMs = Date.parse('2026-03-04T23:59:59Z');
  const settings = { ...SETTINGS, endpoint: 'https://s3.example.com', pathStyle: path };
  const requests = openS3Requests(settings, { ...systemClock(), now: () => nowMs });
  const signatures: (string | null)[] = [];
  for (const stepMs of [0, 1_000, DAY_MS, -DAY_MS]) {
    nowMs += stepMs;
    for (const asked of [GET, PUT]) {
      const url = await requests.presign(asked, 3_600);
      expect(url).toBe(await signedByLibrary(url, asked));
      signatures.push(new URL(url).searchParams.get('X-Amz-Signature'));
    }
  }
  // The last step goes back to the second moment.
  expect(signatures.slice(6)).toEqual(signatures.slice(2, 4));
  expect(new Set(signatures).size).toBe(6);
  expect(signatures.every((signature) => /^[\da-f]{64}$/.test(signature ?? ''))).toBe(true);
});
