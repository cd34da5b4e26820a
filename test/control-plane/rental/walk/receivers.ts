// Receivers of webhooks: they know what the specification tells them, and note what they should not have been sent.
import { OutboundError } from '../../../../control-plane/base/outbound/policy.ts';
import type { OutboundRequest } from '../../../../control-plane/base/outbound/outbound.ts';
import type { Clock } from '../../../../shared/clock.ts';
import type { ScriptedOutbound } from '../../../kit/scripted-outbound.ts';
import { type Received, verify } from '../../../kit/webhook-receiver.ts';

export interface Receivers {
  /** The endpoint exists, and has this secret from now on. */
  trust(url: string, secret: string): void;
  /** The owner has asked for a delivery out of turn. The order of events is not checked from then on. */
  hasten(url: string): void;
  /** The endpoint was deleted. */
  close(url: string): void;
  /** All receivers answer with this status from now on. 0 means that they do not answer. */
  answerWith(status: number): void;
  complaints: readonly string[];
}

interface Receiver {
  secret: string;
  isInTurn: boolean;
  /** Ids of events. */
  heard: Set<string>;
  /** Instance -> the version of its last new event. */
  versions: Map<string, number>;
  /** Instances whose first news of an event is not answered yet: on a real network the next could overtake it. */
  underWay: Set<string>;
}

export function openReceivers(outbound: ScriptedOutbound, clock: Clock): Receivers {
  const receivers = new Map<string, Receiver>();
  const complaints: string[] = [];
  return {
    complaints,
    trust: (url, secret) => {
      const before = receivers.get(url) ?? {
        isInTurn: true,
        heard: new Set(),
        versions: new Map(),
        underWay: new Set<string>(),
      };
      receivers.set(url, { ...before, secret });
    },
    hasten: (url) => {
      const receiver = receivers.get(url);
      if (receiver !== undefined) receiver.isInTurn = false;
    },
    close: (url) => receivers.delete(url),
    answerWith: (status) => {
      outbound.answer = async (request) => {
        const receiver = receivers.get(request.url);
        const wrong = complaintAbout(request, receiver, clock.now());
        if (wrong !== undefined) complaints.push(`${request.url} ${wrong}`);
        await clock.nextTurn();
        receiver?.underWay.delete(instanceOf(request).id);
        if (status === 0) throw new OutboundError('timeout', 'no answer');
        return { status };
      };
    },
  };
}

function complaintAbout(
  { headers = {}, body = '' }: OutboundRequest,
  receiver: Receiver | undefined,
  nowMs: number,
): string | undefined {
  if (receiver === undefined) return 'was deleted, and something was sent to it';
  const lowerCase = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  const answer = verify(receiver.secret, { headers: lowerCase, body: Buffer.from(body) }, nowMs / 1000);
  if (answer !== 204) return 'was sent something with another signature than its own';
  const event = JSON.parse(body.toString()) as Received;
  if (receiver.heard.has(event.id)) return undefined;
  receiver.heard.add(event.id);
  const { id, version } = event.data.instance;
  const [last, isCrowded] = [receiver.versions.get(id) ?? -1, receiver.underWay.has(id)];
  receiver.versions.set(id, version);
  receiver.underWay.add(id);
  if (!receiver.isInTurn) return undefined;
  if (isCrowded) return `heard of version ${version} of ${id} before it had answered to ${last}`;
  return version < last ? `heard of version ${version} of ${id} after ${last}` : undefined;
}

function instanceOf({ body = '' }: OutboundRequest): Received['data']['instance'] {
  return (JSON.parse(body.toString()) as Received).data.instance;
}
