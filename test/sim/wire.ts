// A simulated network: pairs of sockets whose packets take time, wait while the path is cut, and arrive in order, as over TCP. Two connections
// are independent: one may lag behind the next, and either end may lose one while the other end notices nothing.
import { EventEmitter } from 'node:events';
import type { Clock } from '../../shared/clock.ts';
import { LINK_HELLO_MS_MAX } from '../../shared/limits.ts';
import type { LinkSocket } from '../../shared/protocol/link.ts';

/** The network path between a host and the control plane. */
export interface Path {
  isOpen(): boolean;
  /** What was sent while the path was closed arrives when it is open again. */
  set(isOpen: boolean): void;
  /** The delay of one packet. */
  delayMs(): number;
  /** Calls `fn` at once if the path is open. */
  whenOpen(fn: () => void): void;
  /** The connections that are not closed at both ends. */
  connections(): Connection[];
  join(connection: Connection): void;
  /** True if nothing on the path lags or is lost. */
  isCalm(): boolean;
  /** Called if the state of a connection has changed. */
  onChange(): void;
}

interface Connection {
  /** The end at the host. */
  near: Socket;
  /** The end at the control plane. */
  far: Socket;
}

export function openPath(delayMs: () => number, onChange: () => void): Path {
  let isOpen = true;
  let waiting: (() => void)[] = [];
  let connections: Connection[] = [];
  const alive = ({ near, far }: Connection): boolean => near.readyState !== CLOSED || far.readyState !== CLOSED;
  return {
    isOpen: () => isOpen,
    set: (to) => {
      isOpen = to;
      onChange();
      if (!isOpen) return;
      const due = waiting;
      waiting = [];
      for (const fn of due) fn();
    },
    delayMs,
    whenOpen: (fn) => void (isOpen ? fn() : waiting.push(fn)),
    connections: () => connections.filter(alive),
    isCalm: () => !connections.some((one) => alive(one) && (one.near.isTroubled() || one.far.isTroubled())),
    onChange,
    join: (connection) => void (connections = [...connections.filter(alive), connection]),
  };
}

type Packet = { kind: 'text'; text: string } | { kind: 'ping' | 'pong' | 'reset' } | Goodbye;
interface Goodbye {
  kind: 'close';
  code: number;
  reason: string;
}

const [CONNECTING, OPEN, CLOSING, CLOSED] = [0, 1, 2, 3];
/** How long `ws` waits for the answer to a close frame. */
const CLOSE_MS_MAX = 30_000;
const ABNORMAL = 1006;

/** One end of a connection. */
export class Socket extends EventEmitter implements LinkSocket {
  readonly OPEN = OPEN;
  /** The other end of this wire reads at once. */
  readonly bufferedAmount = 0;
  readyState = CONNECTING;
  #peer: Socket | undefined;
  #arrivesMs = 0;
  #lagMs = 0;
  #isLossy = false;
  #isPaused = false;
  #inbox: Packet[] = [];
  readonly #path: Path;
  readonly #clock: Clock;

  constructor(path: Path, clock: Clock) {
    super();
    this.#path = path;
    this.#clock = clock;
  }

  send(text: string): void {
    if (this.readyState === OPEN) this.#post({ kind: 'text', text });
  }

  ping(): void {
    if (this.readyState === OPEN) this.#post({ kind: 'ping' });
  }

  close(code: number, reason: string): void {
    if (this.readyState >= CLOSING) return;
    this.readyState = CLOSING;
    this.#post({ kind: 'close', code, reason });
    this.#clock.after(CLOSE_MS_MAX, () => this.terminate());
  }

  terminate(): void {
    if (this.readyState === CLOSED) return;
    this.#post({ kind: 'reset' });
    this.#clock.after(0, () => this.#finish(ABNORMAL, ''));
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.#drain();
  }

  /** The process of this end dies. Its kernel closes the connection, unless the power went as well. */
  vanish(isPowerCut: boolean): void {
    this.removeAllListeners();
    if (this.readyState !== CLOSED && !isPowerCut) this.#post({ kind: 'close', code: ABNORMAL, reason: '' });
    this.readyState = CLOSED;
    if (this.isTroubled()) this.#path.onChange();
  }

  /** Delays everything that this end sends from now on. */
  lag(ms: number): void {
    this.#lagMs = ms;
    this.#path.onChange();
  }

  /** Nothing that this end has sent or sends arrives. */
  lose(): void {
    this.#isLossy = true;
    this.#path.onChange();
  }

  isTroubled(): boolean {
    return this.#isLossy || this.#lagMs > 0;
  }

  /** A router resets the connection towards this end alone. What is under way goes on. */
  fail(detail: string): void {
    if (this.readyState === CLOSED) return;
    if (this.listenerCount('error') > 0) this.emit('error', new Error(detail));
    this.#finish(ABNORMAL, '');
  }

  pairWith(peer: Socket): void {
    [this.#peer, this.readyState] = [peer, OPEN];
  }

  #post(packet: Packet): void {
    const nowMs = this.#clock.now();
    this.#arrivesMs = Math.max(this.#arrivesMs, nowMs + this.#path.delayMs() + this.#lagMs);
    this.#clock.after(this.#arrivesMs - nowMs, () => {
      // A reset is sent once. Everything else is repeated until it arrives.
      if (this.#isLossy || (packet.kind === 'reset' && !this.#path.isOpen())) return;
      this.#path.whenOpen(() => this.#peer?.take(packet));
    });
  }

  take(packet: Packet): void {
    if (this.readyState === CLOSED) {
      if (packet.kind !== 'reset') this.#post({ kind: 'reset' });
      return;
    }
    this.#inbox.push(packet);
    this.#drain();
  }

  #drain(): void {
    for (let packet = this.#next(); packet !== undefined; packet = this.#next()) this.#handle(packet);
  }

  #next(): Packet | undefined {
    return this.#isPaused ? undefined : this.#inbox.shift();
  }

  #handle(packet: Packet): void {
    switch (packet.kind) {
      case 'text':
        return void this.emit('message', Buffer.from(packet.text), false);
      case 'ping':
        this.emit('ping');
        return this.#post({ kind: 'pong' });
      case 'pong':
        return void this.emit('pong');
      case 'close':
        if (this.readyState === OPEN) this.#post(packet);
        return this.#finish(packet.code, packet.reason);
      case 'reset':
        return this.#finish(ABNORMAL, '');
    }
  }

  #finish(code: number, reason: string): void {
    if (this.readyState === CLOSED) return;
    this.readyState = CLOSED;
    if (this.isTroubled()) this.#path.onChange();
    this.emit('close', code, Buffer.from(reason));
  }
}

/** `accept` gets the far end, and returns false if nobody listens. */
export function dial(path: Path, clock: Clock, accept: (far: Socket) => boolean): Socket {
  const near = new Socket(path, clock);
  clock.after(path.delayMs(), () => {
    if (near.readyState === CLOSED) return;
    if (!path.isOpen()) {
      clock.after(LINK_HELLO_MS_MAX, () => near.fail('Opening handshake has timed out'));
      return;
    }
    const far = new Socket(path, clock);
    near.pairWith(far);
    far.pairWith(near);
    path.join({ near, far });
    if (!accept(far)) near.fail('connect ECONNREFUSED');
  });
  return near;
}
