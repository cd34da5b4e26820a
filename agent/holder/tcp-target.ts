// Carries connections to the application's ports: each is a data stream outside and a dialled connection inside the container.
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../shared/clock.ts';
import { TCP_CONNECTIONS_MAX } from '../../shared/limits.ts';
import { feed, frameSink, leaveSession } from './guest-frames.ts';
import type { Guests } from './guest-connection.ts';

export interface TcpServer {
  /** Dials the port inside first, then the stream. If nothing listens inside, no stream is opened. Rejects with the reason. */
  serve(port: number, dialStream: () => Promise<Duplex>): Promise<void>;
}

/** Applications listen on this address as localhost. */
const LOOPBACK = '127.0.0.1';

export function openTcpServer({ guests, clock }: { guests: Guests; clock: Clock }): TcpServer {
  const open = new Set<Socket>();
  let opening = 0;

  const dialInside = async (port: number, outside: Promise<Duplex | undefined>): Promise<Socket> => {
    let ended = false;
    opening += 1;
    try {
      const { socket } = await guests.open(
        { kind: 'dial', host: LOOPBACK, port },
        {
          onData: async (_type, bytes) => {
            const stream = await outside;
            if (stream !== undefined) await writeTo(stream, bytes);
          },
          onEof: () => {
            ended = true;
            void outside.then((stream) => stream?.end());
          },
          // If the connection inside broke, the stream is destroyed: its client must not mistake the end for a normal one.
          onEnd: () =>
            void outside.then((stream) => {
              if (!ended) stream?.destroy();
            }),
        },
      );
      open.add(socket);
      socket.once('close', () => open.delete(socket));
      return socket;
    } finally {
      opening -= 1;
    }
  };

  return {
    serve: async (port, dialStream) => {
      if (open.size + opening >= TCP_CONNECTIONS_MAX) {
        throw new Error('too many connections to the ports of this instance');
      }
      // Resolves with undefined if there is no stream. It never rejects, because a rejection might have no handler.
      const outside = Promise.withResolvers<Duplex | undefined>();
      const inside = await dialInside(port, outside.promise).catch((error: unknown) => {
        // Bytes of a guest that connects too late would wait for the stream for ever.
        outside.resolve(undefined);
        throw error;
      });
      try {
        const stream = await dialStream();
        stream.on('error', () => stream.destroy());
        const sink = frameSink(inside);
        // The application must not mistake half a request for a whole one either.
        stream.once('close', () => {
          if (sink.writableEnded) leaveSession(inside, sink, clock);
          else inside.destroy();
        });
        feed(stream, sink);
        outside.resolve(stream);
      } catch (error) {
        outside.resolve(undefined);
        inside.destroy();
        throw error;
      }
    },
  };
}

/** Resolves when the stream can take more, or is gone. */
function writeTo(stream: Duplex, bytes: Buffer): Promise<void> {
  if (!stream.writable || stream.write(bytes)) return Promise.resolve();
  return new Promise((resolve) => {
    const done = (): void => {
      stream.off('drain', done);
      stream.off('close', done);
      resolve();
    };
    stream.once('drain', done);
    stream.once('close', done);
  });
}
