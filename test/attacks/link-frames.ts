// Frames of strangers for the control link: each connection sends one without a proof of identity, and then gives way to the next.
import { connect } from 'node:net';
import { LINK_HELLO_BYTES_MAX, LINK_MESSAGE_BYTES_MAX } from '../../shared/limits.ts';
import { LINK_PATH } from '../../shared/protocol/link.ts';

export interface LinkFlood {
  /** Frames so far. */
  sent(): number;
  stop(): void;
}

const ADDRESSES = ['127.0.0.2', '127.0.0.3', '127.0.0.4', '127.0.0.5'];
const AT_ONCE_PER_ADDRESS = 4;
/** The attack is bounded. */
const SENT_MAX = 100_000;

const HANDSHAKE = [
  `GET ${LINK_PATH} HTTP/1.1`,
  'Host: x',
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  `Sec-WebSocket-Key: ${Buffer.alloc(16).toString('base64')}`,
  '\r\n',
].join('\r\n');

export function floodLink(port: number): LinkFlood {
  const frames = [LINK_MESSAGE_BYTES_MAX, LINK_HELLO_BYTES_MAX].map(worstFrame);
  const stops = new Set<() => void>();
  let isOver = false;
  let sent = 0;
  const send = (localAddress: string): void => {
    if (isOver || sent >= SENT_MAX) return;
    const socket = connect({ port, host: '127.0.0.1', localAddress });
    const stop = (): void => void socket.destroy();
    stops.add(stop);
    socket.on('error', () => undefined);
    socket.once('data', () => {
      sent += 1;
      socket.write(frames[sent % frames.length] ?? Buffer.alloc(0));
      // Whatever is said next is a goodbye.
      socket.once('data', stop);
    });
    socket.once('close', () => {
      stops.delete(stop);
      setImmediate(() => send(localAddress));
    });
    socket.write(HANDSHAKE);
  };
  for (const address of ADDRESSES) for (let i = 0; i < AT_ONCE_PER_ADDRESS; i += 1) send(address);
  return {
    sent: () => sent,
    stop: () => {
      isOver = true;
      for (const stop of stops) stop();
    },
  };
}

/** What froze the parser: a NUL, and then as many numbers as there is room for. */
function worstFrame(bytes: number): Buffer {
  const text = `["\\u0000"${',0'.repeat((bytes - 16) / 2)}]`;
  const head = Buffer.alloc(14);
  head.writeUInt16BE(0x81ff, 0);
  head.writeBigUInt64BE(BigInt(text.length), 2);
  return Buffer.concat([head, Buffer.from(text)]);
}
