// Streams between two control planes over real connections: the bytes of a workload, and every reason why there is no stream.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Socket } from 'node:net';
import { type Duplex, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { StreamError } from '../../../control-plane/fleet/link/streams.ts';
import { STREAM_DIAL_MS_MAX } from '../../../shared/limits.ts';
import { makeCertificate } from '../../kit/certificate.ts';
import { openPeerPrimary, type PeerPrimary, TARGET } from './peer-primary.ts';

const MIB = 1024 ** 2;
const BROKEN = 'the peer closed the stream before its end';
const certificate = makeCertificate(['IP:127.0.0.1']);

let primary: PeerPrimary;
let before: string[];
beforeAll(() => {
  before = getCACertificates('default');
  setDefaultCACertificates([...before, certificate.cert]);
});
afterAll(() => setDefaultCACertificates(before));
beforeEach(() => {
  primary = openPeerPrimary();
});
afterEach(async () => {
  primary.cut();
  await primary.stop();
});

const failureOf = (dialling: Promise<Duplex>): Promise<unknown> => dialling.catch((error: unknown) => error);
const noConnection = async (): Promise<void> => {
  await expect.poll(() => primary.connections()).toBe(0);
};
const md5 = (data: Buffer): string => createHash('md5').update(data).digest('hex');
/** The end of one direction leaves the other open, which `toArray` would not. */
async function read(end: Duplex): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of end.iterator({ destroyOnReturn: false })) chunks.push(chunk as Uint8Array);
  return Buffer.concat(chunks);
}

describe.each([
  ['plain HTTP', undefined],
  ['TLS', certificate],
])('a stream over %s', (_how, files) => {
  let stream: Duplex;
  let workload: Duplex;
  beforeEach(async () => {
    stream = await primary.dial(await primary.start(files));
    ({ workload } = primary);
  });
  afterEach(() => void stream.destroy());

  test('leads to the workload that was asked for, and its caller has proven itself', () => {
    expect(primary.asked).toEqual([['m-1', 'w-1', TARGET]]);
    expect(primary.proofs).toBe(1);
  });

  test('looks at its primary while it is open, and leaves no timer', async () => {
    await primary.clock.advance(60_000);
    expect([stream.destroyed, primary.clock.waiting()]).toEqual([false, 1]);
    stream.destroy();
    await once(stream, 'close');
    expect(primary.clock.waiting()).toBe(0);
  });

  test('carries bytes whole and in order, both ways at once, and closes when both ends are done', async () => {
    const [up, down] = [randomBytes(8 * MIB), randomBytes(8 * MIB)];
    const [, , gotUp, gotDown] = await Promise.all([
      pipeline(Readable.from([up]), stream),
      pipeline(Readable.from([down]), workload),
      read(workload).then(md5),
      read(stream).then(md5),
    ]);
    expect([gotUp, gotDown]).toEqual([md5(up), md5(down)]);
    await noConnection();
    expect([stream.errored, workload.errored]).toEqual([null, null]);
  });

  test('takes the whole answer after the caller has sent its last byte', async () => {
    stream.end('question');
    expect((await read(workload)).toString()).toBe('question');
    workload.write('a long ');
    workload.end('answer');
    expect((await read(stream)).toString()).toBe('a long answer');
    await noConnection();
  });

  test('takes more from the caller after the workload has sent its last byte', async () => {
    workload.end('greeting');
    expect((await read(stream)).toString()).toBe('greeting');
    stream.write('still ');
    stream.end('here');
    expect((await read(workload)).toString()).toBe('still here');
    await noConnection();
  });

  test.each([
    ['the workload', (): [Duplex, Duplex] => [stream, workload]],
    ['the caller', (): [Duplex, Duplex] => [workload, stream]],
  ])('holds the sender back while %s does not read', async (_who, ends) => {
    const [from, to] = ends();
    let written = 0;
    const chunk = Buffer.alloc(64 * 1024);
    const pump = async (): Promise<void> => {
      for (let i = 0; i < 1_000; i += 1) {
        written += chunk.length;
        if (!from.write(chunk)) await once(from, 'drain');
      }
    };
    const pumping = pump();
    await untilStill(() => written);
    // Kernel buffers on loopback come on top of ours; 62 MiB were offered.
    expect(written).toBeLessThan(40 * MIB);
    to.resume();
    await pumping;
    expect(written).toBe(1_000 * chunk.length);
  });

  test('fails at the caller if the workload breaks it off in the middle, and no connection stays', async () => {
    workload.write('half an ');
    await once(stream, 'readable');
    const reading = read(stream);
    workload.destroy();
    await expect(reading).rejects.toThrow('before its end');
    await noConnection();
  });

  test('fails at the workload if the caller breaks it off, and no connection stays', async () => {
    stream.destroy();
    await expect.poll(() => workload.errored?.message).toBe(BROKEN);
    await noConnection();
  });

  test.each([
    ['the caller', (): [Duplex, Duplex] => [stream, workload]],
    ['the workload', (): [Duplex, Duplex] => [workload, stream]],
  ])('fails on both sides if one of them breaks it off after %s has sent its last byte', async (_who, ends) => {
    const [done, other] = ends();
    done.end('last');
    await read(other);
    other.destroy();
    await expect.poll(() => done.errored?.message).toBe(BROKEN);
    await noConnection();
  });

  test('fails on both sides if the connection between the control planes breaks', async () => {
    const reading = read(stream);
    primary.cut();
    await expect(reading).rejects.toThrow('before its end');
    await expect.poll(() => workload.errored?.message).toBe(BROKEN);
  });
});

describe('there is no stream if', () => {
  test.each(['link', 'dial', 'refused'] as const)(
    'the primary fails at the leg %s, and its words arrive',
    async (leg) => {
      primary.openStream = async () => {
        throw new StreamError(leg, 'why: „no“');
      };
      const failure = await failureOf(primary.dial(await primary.start()));
      expect(failure).toBeInstanceOf(StreamError);
      expect(failure).toMatchObject({ leg, message: 'why: „no“' });
      await noConnection();
      expect([primary.logged, primary.clock.waiting()]).toEqual([[], 0]);
    },
  );

  test('the primary fails in a way that it did not expect, which it logs', async () => {
    primary.openStream = async () => {
      throw new Error('a fault of ours');
    };
    expect(await failureOf(primary.dial(await primary.start()))).toMatchObject({ leg: 'link' });
    expect(primary.logged.join()).toContain('a fault of ours');
    await noConnection();
  });

  test('nobody has the links', async () => {
    const failure = { leg: 'link', message: 'no control plane has the links at the moment' };
    expect(await failureOf(primary.dial(undefined))).toMatchObject(failure);
  });

  test('the primary is down', async () => {
    const url = await primary.start();
    await primary.stop();
    expect(await failureOf(primary.dial(url))).toMatchObject({ leg: 'link' });
  });

  test('the primary says nothing for longer than a host may take, and then the connection is closed', async () => {
    const server = createServer();
    const arrived = once(server, 'upgrade') as Promise<[unknown, Socket]>;
    const failure = failureOf(primary.dial(await primary.startAs(server)));
    const [, socket] = await arrived;
    await primary.clock.advance(STREAM_DIAL_MS_MAX);
    const closed = once(socket.resume(), 'end');
    await primary.clock.advance(10_000);
    expect(await failure).toMatchObject({ leg: 'link' });
    await closed;
    socket.end();
    expect(primary.clock.waiting()).toBe(0);
  });

  test.each([
    ['it has no such path', 404, 'no'],
    ['what it says is not JSON', 502, 'no'],
    ['what it says has no leg', 502, '{}'],
    ['what it says is too long', 502, JSON.stringify({ leg: 'dial', detail: 'x'.repeat(MIB) })],
  ])('what answers is no primary: %s', async (_what, status, body) => {
    const shouldUpgradeCallback = (): boolean => false;
    const server = createServer({ shouldUpgradeCallback }, (_request, response) =>
      response.writeHead(status).end(body),
    );
    const failure = await failureOf(primary.dial(await primary.startAs(server)));
    expect(failure).toMatchObject({ leg: 'link', message: expect.stringContaining(String(status)) as string });
    await noConnection();
  });

  test('the wall clocks of the two differ by more than a minute, which the reason names', async () => {
    primary.lateMs = 61_000;
    const failure = await failureOf(primary.dial(await primary.start()));
    const message = expect.stringContaining('the wall clocks of the two may differ by more than a minute') as string;
    expect(failure).toMatchObject({ leg: 'link', message });
    await noConnection();
  });

  test('what answers speaks another protocol', async () => {
    const server = createServer().on('upgrade', (_request, socket) => {
      socket.resume().once('end', () => socket.end());
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
    });
    expect(await failureOf(primary.dial(await primary.startAs(server)))).toMatchObject({ leg: 'link' });
    await noConnection();
  });

  test('the target has more keys than a header may hold', async () => {
    const keys = Array<string>(200).fill(`ssh-ed25519 ${'A'.repeat(300)}`);
    const url = await primary.start();
    const failure = failureOf(primary.dial(url, { kind: 'ssh', authorized_keys: keys, client_ip: '192.0.2.1' }));
    expect(await failure).toMatchObject({ leg: 'link', message: 'the target is too long for a request' });
    expect(await primary.connections()).toBe(0);
  });
});

test('a stream that its caller does not wait for any more is closed', async () => {
  const gate = Promise.withResolvers<void>();
  const opened = Promise.withResolvers<Duplex>();
  const { openStream } = primary;
  primary.openStream = async (...what) => {
    await gate.promise;
    const stream = await openStream(...what);
    opened.resolve(primary.workload);
    return stream;
  };
  const failure = failureOf(primary.dial(await primary.start()));
  await expect.poll(() => primary.proofs).toBe(1);
  await primary.clock.advance(STREAM_DIAL_MS_MAX + 10_000);
  expect(await failure).toMatchObject({ leg: 'link' });
  await noConnection();
  gate.resolve();
  const late = await opened.promise;
  await expect.poll(() => late.destroyed).toBe(true);
});

describe('a log that is followed through a primary that stops', () => {
  let url: string;
  let log: Duplex;
  let failure: Promise<unknown>;
  beforeEach(async () => {
    url = await primary.start();
    log = await primary.dial(url, { kind: 'logs', tail: 10, follow: true, since: null });
    failure = read(log).catch((error: unknown) => error);
  });

  test('does not hold it up', async () => {
    const startMs = primary.clock.monotonicMs();
    await primary.drain(40_000);
    expect(primary.clock.monotonicMs()).toBe(startMs);
    expect(await failure).toMatchObject({ message: BROKEN });
    await noConnection();
  });

  test('goes on while other streams may last', async () => {
    const other = await primary.dial(url);
    other.on('error', () => undefined);
    const drained = primary.drain(40_000);
    await primary.clock.advance(39_999);
    expect([log.destroyed, other.destroyed]).toEqual([false, false]);
    await primary.clock.advance(1);
    await drained;
    expect(await failure).toMatchObject({ message: BROKEN });
    await noConnection();
  });
});

/** Waits until the figure does not grow any more. */
async function untilStill(figure: () => number): Promise<void> {
  let last = -1;
  while (last !== figure()) {
    last = figure();
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
