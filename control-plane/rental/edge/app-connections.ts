// A pool of connections to applications. Each connection is a data stream to a port inside a container.
import { Agent, type AgentOptions } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';

/** Makes a new stream to the port. */
export type Dial = () => Promise<Duplex>;

export interface AppConnections {
  /**
   * Lends an HTTP agent for one request; call `release` when the request is over. The application may just be closing a connection that was
   * used before, so lend only for requests that can be sent again.
   */
  lend(key: string, dial: Dial): { agent: Agent; release(): void };
  /** An agent with a new connection that is closed after one request. */
  once(dial: Dial): Agent;
  close(): void;
}

const IDLE_SOCKETS_MAX = 4;
/** Open connections have no limit here, because Node would let further requests wait without an end. The link limits its streams. */
const KEPT: AgentOptions = { keepAlive: true, maxFreeSockets: IDLE_SOCKETS_MAX };
/** Shorter than the five seconds after which many servers close an idle connection. */
const IDLE_MS = 4_000;

interface Lent {
  agent: Agent;
  dial: Dial;
  requests: number;
  cancelIdle(): void;
}

export function openAppConnections(clock: Clock): AppConnections {
  const agents = new Map<string, Lent>();
  return {
    lend: (key, dial) => {
      const lent = agents.get(key) ?? newLent(dial);
      agents.set(key, lent);
      // The instance may have moved to another host since the last request.
      lent.dial = dial;
      lent.cancelIdle();
      lent.requests += 1;
      let released = false;
      return {
        agent: lent.agent,
        release: () => {
          if (released) return;
          released = true;
          lent.requests -= 1;
          if (lent.requests > 0) return;
          lent.cancelIdle = clock.after(IDLE_MS, () => {
            agents.delete(key);
            lent.agent.destroy();
          });
        },
      };
    },
    once: (dial) => createAgent(dial, {}),
    close: () => {
      for (const { agent, cancelIdle } of agents.values()) {
        cancelIdle();
        agent.destroy();
      }
      agents.clear();
    },
  };
}

function newLent(dial: Dial): Lent {
  const lent: Lent = {
    agent: createAgent(() => lent.dial(), KEPT),
    dial,
    requests: 0,
    cancelIdle: () => undefined,
  };
  return lent;
}

function createAgent(dial: Dial, options: AgentOptions): Agent {
  const agent = new Agent(options);
  agent.createConnection = (_options, callback) => {
    void connect(dial, callback as Connected);
    return undefined;
  };
  return agent;
}

/** Node's callback for a new connection. Node passes only one of the two arguments, but its types require both. */
type Connected = (error: unknown, stream?: Duplex) => void;

async function connect(dial: Dial, done: Connected): Promise<void> {
  let stream: Duplex;
  try {
    stream = await dial();
  } catch (error) {
    return done(error);
  }
  done(null, likeSocket(stream));
}

/**
 * Adds the socket methods that Node's agent calls and a stream does not have. The connection must not stay half open: if the application ends
 * its side, it answers no further request, and a request on that connection would wait for ever.
 */
function likeSocket(stream: Duplex): Duplex {
  stream.allowHalfOpen = false;
  const same = (): Duplex => stream;
  return Object.assign(stream, { setKeepAlive: same, setNoDelay: same, setTimeout: same, ref: same, unref: same });
}
