// The WebSocket that carries the control link.
import WebSocket from 'ws';
import { LINK_DESIRED_BYTES_MAX, LINK_HELLO_MS_MAX } from '../../shared/limits.ts';
import type { LinkSocket } from '../../shared/protocol/link.ts';

/** Returns the socket while it connects. If that fails, it emits `error` and `close`. `ca` replaces the public authorities. */
export function dialLink(url: string, ca: string | undefined): LinkSocket {
  return new WebSocket(url, {
    perMessageDeflate: false,
    maxPayload: LINK_DESIRED_BYTES_MAX,
    handshakeTimeout: LINK_HELLO_MS_MAX,
    ...(ca === undefined ? {} : { ca }),
  });
}
