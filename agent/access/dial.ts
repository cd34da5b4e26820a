// Dials the data stream that the control plane has asked for.
import type { Duplex } from 'node:stream';
import WebSocket from 'ws';
import { STREAM_DIAL_MS_MAX, STREAM_MESSAGE_BYTES_MAX } from '../../shared/limits.ts';
import { STREAM_SOCKET_OPTIONS, streamDuplex } from '../../shared/protocol/stream.ts';

/** Rejects where the control plane does not take the stream. ws sets TCP_NODELAY on every socket. */
export function dialStream({ url, ca }: { url: string; ca: string | null }): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, {
      ...STREAM_SOCKET_OPTIONS,
      maxPayload: STREAM_MESSAGE_BYTES_MAX,
      handshakeTimeout: STREAM_DIAL_MS_MAX,
      // A mask protects proxies from what a web page sends; these bytes are encrypted by SSH, and masking them cost more than encrypting.
      generateMask: (mask) => mask.fill(0),
      ...(ca === null ? {} : { ca }),
    });
    // In this very turn: bytes that came with the handshake are handed out in the next one.
    socket.once('open', () => resolve(streamDuplex(socket)));
    socket.once('error', reject);
  });
}
