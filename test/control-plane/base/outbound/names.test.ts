// Names of customers are resolved by DNS: both kinds of address count, and one missing kind is no failure.
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { byDns } from '../../../../control-plane/base/outbound/connection.ts';

const A = 1;
const AAAA = 28;
const NO_SUCH_NAME = 3;
/** Name -> kind of record -> address as bytes. */
const ZONE: Record<string, Record<number, number[]>> = {
  'both.test': { [A]: [192, 0, 2, 1], [AAAA]: [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1] },
  'four.test': { [A]: [192, 0, 2, 4] },
  'six.test': { [AAAA]: [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6] },
};

let server: Socket;
let servers: string[];
beforeAll(async () => {
  server = createSocket('udp4', (query, from) => server.send(answerTo(query), from.port, from.address));
  server.bind(0, '127.0.0.1');
  await once(server, 'listening');
  servers = [`127.0.0.1:${server.address().port}`];
});
afterAll(() => void server.close());

/** RFC 1035: the header, the question, and a record if there is one. */
function answerTo(query: Buffer): Buffer {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length));
    at += length + 1;
  }
  const kind = query.readUInt16BE(at + 1);
  const question = query.subarray(12, at + 5);
  const records = ZONE[labels.join('.').toLowerCase()];
  const address = records?.[kind];
  const header = Buffer.from(query.subarray(0, 12));
  header.writeUInt16BE(0x8180 | (records === undefined ? NO_SUCH_NAME : 0), 2);
  header.writeUInt16BE(address === undefined ? 0 : 1, 6);
  header.fill(0, 8);
  if (address === undefined) return Buffer.concat([header, question]);
  const record = Buffer.from([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, address.length, ...address]);
  return Buffer.concat([header, question, record]);
}

test.each([
  ['both.test', ['192.0.2.1', '2001:db8::1']],
  ['four.test', ['192.0.2.4']],
  ['six.test', ['2001:db8::6']],
])('%s', async (name, addresses) => {
  expect(await byDns(name, servers)).toEqual(addresses);
});

test('a name that does not exist fails', async () => {
  await expect(byDns('none.test', servers)).rejects.toThrow('ENOTFOUND');
});
