// The largest list that S3 sends is read. XML that would keep everybody else waiting is not.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { openS3Requests, type S3Answer } from '../../../../control-plane/base/blobs/s3-requests.ts';
import { virtualClock, whileTimePasses } from '../../../kit/virtual-clock.ts';

/** What is read of a store that always sends this. */
async function read(xml: string): Promise<S3Answer> {
  const server = createServer((_request, response) => response.end(xml)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const clock = virtualClock();
  const store = { region: 'eu', bucket: 'blobs', accessKey: 'AKIA', secretKey: 'the secret', pathStyle: true };
  const requests = openS3Requests({ ...store, endpoint: `http://127.0.0.1:${port}` }, clock);
  try {
    return await whileTimePasses(clock, requests.send({ method: 'GET' }), 100);
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

test('a thousand uploads with the longest keys are read, with all that S3 says of each', async () => {
  const person = `<ID>${'a'.repeat(64)}</ID><DisplayName>${'n'.repeat(64)}</DisplayName>`;
  const names = ['UploadId', 'Initiated', 'StorageClass', 'ChecksumAlgorithm', 'ChecksumType'];
  const more = names.map((name) => `<${name}>${'x'.repeat(64)}</${name}>`).join('');
  // An ampersand is the character that takes most room.
  const upload = `<Upload><Key>${'&amp;'.repeat(1_024)}</Key>${more}<Initiator>${person}</Initiator><Owner>${person}</Owner></Upload>`;
  const { xml } = await read(`<ListMultipartUploadsResult>${upload.repeat(1_000)}</ListMultipartUploadsResult>`);
  expect(xml['Upload']).toHaveLength(1_000);
  expect(xml['Upload']).toMatchObject({ 999: { Key: '&'.repeat(1_024) } });
});

test.each([
  ['more tags than any list has', `<a>${'<b/>'.repeat(40_000)}</a>`, 'has more than 40000 tags'],
  ['more bytes than any list has', `<a>${'x'.repeat(6 * 1024 ** 2)}</a>`, 'is longer than 6291456 bytes'],
])('an answer with %s is none', async (_what, xml, why) => {
  await expect(read(xml)).rejects.toThrow(`the answer of the store ${why}`);
});
