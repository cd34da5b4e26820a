// Data streams: requested over a link, dialled by the host with a one-time token, returned as a Duplex.
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import { STREAM_DIAL_MS_MAX, TCP_KEEP_ALIVE_MS } from '../../../shared/limits.ts';
import { STREAMS_PATH } from '../../../shared/protocol/link.ts';
import { acceptStream } from '../../../shared/protocol/stream.ts';
import type { Upgrade } from '../../base/http/upgrades.ts';

/** The reason why a stream was not opened. `leg` names the step that failed. */
export class StreamError extends Error {
  readonly leg: 'link' | 'dial' | 'refused';

  constructor(leg: StreamError['leg'], message: string) {
    super(message);
    this.name = 'StreamError';
    this.leg = leg;
  }
}

export interface PendingStream {
  streamId: string;
  token: string;
  /** Rejects with a StreamError after STREAM_DIAL_MS_MAX. */
  dialled: Promise<Duplex>;
}

export interface Streams {
  /** Registers a stream that the host should dial. `onBytes` is called whenever the host sends bytes on it. */
  expect(machineId: string, onBytes?: () => void): PendingStream;
  /** The host has refused to dial. */
  refuse(machineId: string, streamId: string, detail: string): void;
  onUpgrade(upgrade: Upgrade): void;
  close(): void;
}

interface Waiting {
  machineId: string;
  streamId: string;
  onBytes: (() => void) | undefined;
  resolve(stream: Duplex): void;
  reject(error: StreamError): void;
}

export function openStreams(deps: { clock: Clock; ids: Ids }): Streams {
  const { clock, ids } = deps;
  const waiting = new Map<string, Waiting>();

  return {
    expect: (machineId, onBytes) => {
      const token = ids.secret(32);
      const streamId = ids.prefixed('str');
      const dialled = new Promise<Duplex>((resolve, reject) => {
        const settle = (): void => {
          waiting.delete(token);
          cancel();
        };
        const cancel = clock.after(STREAM_DIAL_MS_MAX, () => {
          settle();
          reject(new StreamError('dial', 'the host did not open the stream in time'));
        });
        waiting.set(token, {
          machineId,
          streamId,
          onBytes,
          resolve: (stream) => {
            settle();
            resolve(stream);
          },
          reject: (error) => {
            settle();
            reject(error);
          },
        });
      });
      return { streamId, token, dialled };
    },
    refuse: (machineId, streamId, detail) => {
      for (const entry of waiting.values()) {
        if (entry.machineId === machineId && entry.streamId === streamId)
          entry.reject(new StreamError('refused', detail));
      }
    },
    onUpgrade: ({ request, socket, head, proven }) => {
      const token = new URL(request.url ?? '', 'http://stream').pathname.slice(STREAMS_PATH.length);
      const entry = waiting.get(token);
      if (entry === undefined) return refuse(socket, '404 Not Found');
      waiting.delete(token);
      request.socket.setNoDelay(true);
      request.socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
      const stream = acceptStream(request, request.socket, head);
      if (stream === undefined) return refuse(socket, '400 Bad Request');
      // The one-time token was valid. The connection must not count against its address, because a host opens one stream per connection of
      // a customer.
      proven();
      // The first bytes may have broken the stream already. Then it closes before its user can listen for that, and would count as open for ever.
      if (stream.destroyed) return entry.reject(new StreamError('dial', 'the host broke the stream at once'));
      if (entry.onBytes !== undefined) request.socket.on('data', entry.onBytes);
      entry.resolve(stream);
    },
    close: () => {
      for (const entry of waiting.values()) entry.reject(new StreamError('link', 'the control plane is stopping'));
    },
  };
}

/** Answers an upgrade that leads to no stream, and closes its connection, also if the caller does not close its side. */
export function refuse(socket: Duplex, status: string, json = ''): void {
  const head = `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(json)}\r\n\r\n`;
  socket.end(head + json, () => socket.destroy());
}

/**
 * Relays both directions. The end of a direction ends that direction on the other side, and a side that breaks off breaks the other one. Two
 * pipelines of Node on one pair of streams would add so many listeners that Node warns of a leak.
 */
export function splice(one: Duplex, other: Duplex): void {
  relay(one, other);
  relay(other, one);
}

function relay(from: Duplex, to: Duplex): void {
  // Its `close` does not come again.
  if (from.destroyed) return void to.destroy();
  from.pipe(to);
  from.on('error', () => to.destroy());
  from.once('close', () => {
    if (!from.readableEnded || !from.writableFinished) to.destroy();
  });
}
