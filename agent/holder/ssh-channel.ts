// The common part of all SSH channels: their connection, how they end, and the bytes from the client to the container.
import type { Connection, ServerChannel } from 'ssh2';
import type { Clock } from '../../shared/clock.ts';
import { feed, frameSink, leaveSession } from './guest-frames.ts';
import type { GuestSession, Guests } from './guest-connection.ts';
import type { Pace } from './ssh-buffers.ts';

/** The connection that a channel belongs to. */
export interface SessionHost {
  client: Connection;
  guests: Guests;
  clock: Clock;
  pace: Pace;
  /** Open channels, watched for clients that write past their window. */
  channels: Set<WindowedChannel>;
  /** Number of channels, including those that are only requested yet. */
  sessions: number;
  /** Bytes of the environments of all sessions. */
  envBytes: number;
  /** Aborted when the connection to the client has ended for any reason. */
  gone: AbortSignal;
}

/** ssh2's channel with properties that its types omit. */
export type WindowedChannel = ServerChannel & {
  incoming: { window: number; state: string };
  /** `packetSize` is the number of bytes that the client takes in one packet. */
  outgoing: { packetSize: number };
  /** The end of an output for which the client's window had no room, and what ssh2 calls once it is sent. */
  _chunk: Buffer | undefined;
  _chunkcb: (() => void) | undefined;
};

export interface Attached {
  channel: WindowedChannel;
  /** Aborted when the channel has closed, by either side. */
  closed: AbortSignal;
  /** Aborted before `closed` if the connection broke before the client's EOF. */
  lost: AbortSignal;
}

/**
 * The smallest packets that a client gets. ssh2 believes any number. With packets of no bytes, its first output would never end. With packets of one
 * byte, each output would take as long as hundreds of others. Clients in use take 4 KiB and more.
 */
const PACKET_BYTES_MIN = 256;

/** Must be called once for every channel, as soon as it is open. */
export function attach(channel: ServerChannel, host: SessionHost): Attached {
  if (!isWindowed(channel)) throw new Error('ssh2 changed: a channel has no window, or keeps waiting output elsewhere');
  channel.outgoing.packetSize = Math.max(channel.outgoing.packetSize, PACKET_BYTES_MIN);
  const closing = new AbortController();
  const losing = new AbortController();
  const noteLoss = (): void => {
    if (channel.incoming.state === 'open') losing.abort();
  };
  host.gone.addEventListener('abort', noteLoss);
  host.channels.add(channel);
  channel.on('error', () => {});
  channel.stderr.on('error', () => {});
  channel.once('close', () => {
    host.gone.removeEventListener('abort', noteLoss);
    host.channels.delete(channel);
    closing.abort();
  });
  return { channel, closed: closing.signal, lost: losing.signal };
}

/**
 * Must be called when an output is sent, before the next one is written. ssh2 keeps the end of an output that had to wait. If the next output
 * goes to standard error and has to wait too, ssh2 would send the old bytes a second time in its place.
 */
export function forgetSent(channel: WindowedChannel): void {
  channel._chunk = undefined;
  channel._chunkcb = undefined;
}

/** Sends the client's bytes inside, including the last ones before it left. */
export function feedInside(
  { channel, closed, lost }: Attached,
  { socket }: GuestSession,
  { clock, gone }: SessionHost,
): void {
  if (lost.aborted) return void socket.destroy();
  const sink = frameSink(socket);
  const leave = (): void => leaveSession(socket, sink, clock);
  lost.addEventListener('abort', () => socket.destroy());
  // A channel does not close before it is read to its end, even if its client has gone.
  gone.addEventListener('abort', leave);
  closed.addEventListener('abort', () => {
    gone.removeEventListener('abort', leave);
    sink.end();
    leave();
  });
  if (gone.aborted) leave();
  feed(channel, sink);
}

function isWindowed(channel: ServerChannel): channel is WindowedChannel {
  return ['incoming', 'outgoing', '_chunk', '_chunkcb'].every((name) => name in channel);
}
