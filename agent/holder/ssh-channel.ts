// What all SSH channels have in common: the connection that they belong to, how they end, and what the client says on them going inside.
import type { Connection, ServerChannel } from 'ssh2';
import type { Clock } from '../../shared/clock.ts';
import { frameSink, leaveSession } from './frame-sink.ts';
import type { GuestSession, Guests } from './guest-connection.ts';
import type { Pace } from './ssh-pace.ts';

/** The connection that a channel belongs to. */
export interface SessionHost {
  client: Connection;
  guests: Guests;
  clock: Clock;
  pace: Pace;
  /** Open channels, watched for clients that write past their window. */
  channels: Set<WindowedChannel>;
  /** Channels counted from the moment they are asked for. */
  sessions: number;
  /** Aborted when the client has gone, however it went. */
  gone: AbortSignal;
}

/** ssh2's channel with the part of it that its types leave out. */
export type WindowedChannel = ServerChannel & { incoming: { window: number; state: string } };

export interface Attached {
  channel: WindowedChannel;
  /** Aborted when the channel has closed, whoever closed it. */
  closed: AbortSignal;
  /** Aborted before that where the client was lost in the middle of what it said. */
  lost: AbortSignal;
}

/** To be called once for every channel, as soon as there is one. */
export function attach(channel: ServerChannel, host: SessionHost): Attached {
  if (!isWindowed(channel)) throw new Error('ssh2 changed: a channel has no window');
  const closing = new AbortController();
  const losing = new AbortController();
  const judge = (): void => void (channel.incoming.state === 'open' && losing.abort());
  host.gone.addEventListener('abort', judge);
  host.channels.add(channel);
  channel.on('error', () => {});
  channel.stderr.on('error', () => {});
  channel.once('close', () => {
    host.gone.removeEventListener('abort', judge);
    host.channels.delete(channel);
    closing.abort();
  });
  return { channel, closed: closing.signal, lost: losing.signal };
}

/** What the client says goes inside, also what it said last before it left. */
export function feedInside(
  { channel, closed, lost }: Attached,
  { socket }: GuestSession,
  { clock, gone }: SessionHost,
): void {
  if (lost.aborted) return void socket.destroy();
  const sink = frameSink(socket);
  const leave = (): void => leaveSession(socket, sink, clock);
  lost.addEventListener('abort', () => socket.destroy());
  // A channel that is not read to its end does not close, though its client has gone.
  gone.addEventListener('abort', leave);
  closed.addEventListener('abort', () => {
    gone.removeEventListener('abort', leave);
    sink.end();
    leave();
  });
  if (gone.aborted) leave();
  channel.pipe(sink);
}

function isWindowed(channel: ServerChannel): channel is WindowedChannel {
  return 'incoming' in channel;
}
