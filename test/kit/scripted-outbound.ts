// Outbound requests without a network: a test scripts the answers and reads the requests.
import {
  openOutbound,
  type Outbound,
  type OutboundRequest,
  type OutboundResponse,
} from '../../control-plane/base/outbound/outbound.ts';
import { systemClock } from '../../shared/clock.ts';

export interface ScriptedOutbound extends Outbound {
  requests: OutboundRequest[];
  /** The answer to every further request. If it throws, the attempt fails. */
  answer: (request: OutboundRequest) => Promise<Partial<OutboundResponse>>;
}

/** Answers 204 until a test sets another answer. URLs are judged as they are by default. */
export function scriptedOutbound(): ScriptedOutbound {
  const real = openOutbound({ ports: [443, 8443], privateNetworks: [], namedHosts: [] }, { clock: systemClock() });
  const scripted: ScriptedOutbound = {
    requests: [],
    answer: async () => ({ status: 204 }),
    assertAllowed: real.assertAllowed,
    request: async (request) => {
      scripted.requests.push(request);
      const empty = { status: 204, headers: {}, body: Buffer.alloc(0), truncated: false, remoteAddress: '203.0.113.7' };
      return { ...empty, ...(await scripted.answer(request)) };
    },
    close: async () => undefined,
  };
  return scripted;
}
