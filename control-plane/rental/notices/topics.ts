// What is told by mail: the events, the topic of each, and who can do something about it.
import { z } from 'zod';
import type { EventData } from '../../base/events/events.ts';
import type { Scope } from '../../base/http/scopes.ts';
import { UNPAID_REASON } from '../instances/ending.ts';

export const Topic = z.enum(['balance', 'stopped', 'outage', 'machine', 'payout']);
/** Events of one topic are told together. */
export type Topic = z.infer<typeof Topic>;

/** Only members who may do this can act on the topic, so only they are told. */
export const SCOPE_OF: Readonly<Record<Topic, Scope>> = {
  balance: 'deposits:write',
  stopped: 'deposits:write',
  outage: 'instances:write',
  machine: 'supply:write',
  payout: 'supply:write',
};

/** The topic of an event, for the organisation of the event. Undefined if nobody is told. `machines.ts` tells suppliers about their machines. */
export function topicOf({ type, data }: { type: string; data: EventData }): Topic | undefined {
  switch (type) {
    case 'instance.balance_low':
      return 'balance';
    case 'instance.stopping':
      return data['reason'] === UNPAID_REASON ? 'stopped' : undefined;
    case 'instance.unreachable':
    case 'instance.recovered':
    case 'instance.failed':
    case 'instance.credit_held':
    case 'instance.host_leaving':
      return 'outage';
    case 'instance.gpu_broken':
    case 'instance.gpu_mended':
      return data['status'] === 'running' ? 'outage' : undefined;
    case 'instance.terminated':
      // The host has ended it. Other ends have been asked for, or were told before.
      return data['status'] === 'stopped' ? 'outage' : undefined;
    case 'supplier.destination_changed':
    case 'supplier.destination_cancelled':
      return 'payout';
    default:
      return undefined;
  }
}
