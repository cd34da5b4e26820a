// Who may ask a primary for a stream: only another control plane of its database, for a minute. All others are refused and cost little.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Sealing } from '../../../control-plane/base/http/sealing.ts';
import { PEER_STREAMS_PATH } from '../../../control-plane/fleet/link/peer-wire.ts';
import { StreamError } from '../../../control-plane/fleet/link/streams.ts';
import { HEADER_BYTES_MAX } from '../../../shared/limits.ts';
import { openPeerPrimary, type PeerPrimary, TARGET } from './peer-primary.ts';

const WHAT = { asks: { machine_id: 'm-1', workload_id: 'w-1', target: TARGET } };

let primary: PeerPrimary;
let url: string;
beforeEach(async () => {
  primary = openPeerPrimary();
  url = await primary.start();
});
afterEach(async () => {
  primary.cut();
  await primary.stop();
});

let requests = 0;
const sealed = (more: object = {}, sealing: Sealing = primary.sealing): string => {
  requests += 1;
  const opening = { ...WHAT, id: `request ${requests}`, at_ms: primary.clock.now(), ...more };
  return sealing.seal('peer/stream/primary', JSON.stringify(opening));
};
const bearer = (text: string): Record<string, string> => ({ authorization: `Bearer ${text}` });
const noConnection = async (): Promise<void> => {
  await expect.poll(() => primary.connections()).toBe(0);
};

/** The answer to a request for a stream, and whether the connection ends. */
async function answerTo(
  headers: Record<string, string>,
  { path = PEER_STREAMS_PATH, method = 'GET' } = {},
): Promise<string> {
  const answer = Promise.withResolvers<string>();
  const all = { connection: 'Upgrade', upgrade: 'svc-stream', ...headers };
  const asking = request(new URL(path, url), { agent: false, method, headers: all });
  asking.once('response', (response) => {
    response.resume().once('end', () => answer.resolve(`${response.statusCode} ${response.headers.connection}`));
  });
  asking.once('upgrade', (_response, socket) => {
    socket.destroy();
    answer.resolve('a stream');
  });
  asking.once('error', answer.reject).end();
  return answer.promise;
}

/** Sends a request and what comes right after it, and never ends its own side. */
function rawRequest(text: string, rest = ''): Socket {
  const { hostname, port } = new URL(url);
  const head = ['host: primary', 'connection: Upgrade', 'upgrade: svc-stream', `authorization: Bearer ${text}`];
  const caller = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
  caller.write(`GET ${PEER_STREAMS_PATH} HTTP/1.1\r\n${head.join('\r\n')}\r\n\r\n${rest}`);
  return caller.resume().on('error', () => undefined);
}

test.each([
  ['of this moment', 0, 'a stream'],
  ['that is 60 seconds old', -60_000, 'a stream'],
  ['that is older', -60_001, '403 close'],
  ['of a clock that is 60 seconds ahead', 60_000, 'a stream'],
  ['of a clock that is further ahead', 60_001, '403 close'],
])('a request %s has the right answer', async (_what, byMs, answer) => {
  expect(await answerTo(bearer(sealed({ at_ms: primary.clock.now() + byMs })))).toBe(answer);
  expect(primary.asked).toHaveLength(answer === 'a stream' ? 1 : 0);
  await noConnection();
});

test.each<[string, () => Record<string, string>]>([
  ['nothing sealed', () => ({})],
  ['another scheme', () => ({ authorization: `Basic  ${sealed()}` })],
  ['nothing after its scheme', () => bearer('')],
  ['garbage', () => bearer(randomBytes(300).toString('base64url'))],
  ['a text that was sealed with another secret', () => bearer(sealed({}, primary.otherSealing))],
  ['a text that was sealed for another place', () => bearer(primary.sealing.seal('peer/other', sealed()))],
  ['a text that was changed', () => bearer(changed(sealed()))],
  ['a text that was sealed for another process', () => bearer(primary.sealing.seal('peer/stream/before', sealed()))],
  ['a sealed text that is not JSON', () => bearer(primary.sealing.seal('peer/stream/primary', 'no'))],
  ['no id', () => bearer(sealed({ id: undefined }))],
  ['no time', () => bearer(sealed({ at_ms: undefined }))],
  ['an unknown target', () => bearer(sealed({ asks: { ...WHAT.asks, target: { kind: 'root' } } }))],
  [
    'a longer text than a header may have',
    () => bearer(sealed({ asks: { ...WHAT.asks, workload_id: 'w'.repeat(HEADER_BYTES_MAX) } })),
  ],
  ['another protocol', () => ({ ...bearer(sealed()), upgrade: 'websocket' })],
])('a request with %s is refused, logged, and its connection is closed', async (_what, headers) => {
  expect(await answerTo(headers())).toBe('403 close');
  expect([primary.asked, primary.proofs, primary.logged.length]).toEqual([[], 0, 1]);
  await noConnection();
});

test.each([
  ['as it was', (text: string) => text],
  ['written in another way', (text: string) => `${text}==`],
])('a request that is repeated %s is refused', async (_how, repeated) => {
  const text = sealed();
  expect(await answerTo(bearer(text))).toBe('a stream');
  expect(await answerTo(bearer(repeated(text)))).toBe('403 close');
  expect([primary.asked.length, primary.proofs]).toEqual([1, 1]);
  expect(primary.logged).toEqual([expect.stringContaining('it was repeated')]);
});

test.each([
  ['another path', { path: `${PEER_STREAMS_PATH}/x` }],
  ['another method', { method: 'POST' }],
])('a request with %s is refused', async (_what, how) => {
  expect(await answerTo(bearer(sealed()), how)).toBe('403 close');
  expect(primary.asked).toEqual([]);
});

test('many refused requests of an address cause few lines, without what they sent', async () => {
  const text = sealed({ at_ms: 0 });
  for (let i = 0; i < 100; i += 1) await answerTo(bearer(text));
  expect(primary.logged.length).toBeGreaterThan(0);
  expect(primary.logged.length).toBeLessThan(50);
  expect(primary.logged.join()).not.toContain(text);
});

test('the connection of a refused caller is closed, also if the caller does not close its side', async () => {
  rawRequest('garbage');
  await expect.poll(() => primary.logged.length).toBe(1);
  await noConnection();
});

test('the connection of a caller whose stream failed is closed, also if the caller does not close its side', async () => {
  primary.openStream = async () => {
    throw new StreamError('dial', 'no');
  };
  rawRequest(sealed());
  await expect.poll(() => primary.proofs).toBe(1);
  await noConnection();
});

test('the stream of a caller that sends something else than the stream wire, even with its request, is closed', async () => {
  const caller = rawRequest(sealed(), 'GET / HTTP/1.1\r\n\r\n');
  await once(caller, 'end');
  await expect.poll(() => primary.workload.destroyed).toBe(true);
  caller.destroy();
  await noConnection();
});

/** The same text with another character in the middle. */
function changed(text: string): string {
  const at = Math.floor(text.length / 2);
  return text.slice(0, at) + (text[at] === 'A' ? 'B' : 'A') + text.slice(at + 1);
}
