// How many bytes of messages are read: from an address whose machine is not proven yet, and from a machine.
import { networkOf } from '../../../shared/client-network.ts';
import type { Clock } from '../../../shared/clock.ts';
import {
  LINK_READ_BYTES_BURST,
  LINK_READ_BYTES_PER_SECOND,
  LINK_UNPROVEN_BYTES_BURST,
  LINK_UNPROVEN_BYTES_PER_SECOND,
} from '../../../shared/limits.ts';
import { openBuckets } from '../../base/http/buckets.ts';

export interface ReadBudget {
  /** Takes the bytes of a first message; false if the address has sent too many that proved nothing. */
  takeUnproven(clientIp: string, bytes: number): boolean;
  /** The first message held a proof: it costs the address nothing. */
  giveBack(clientIp: string, bytes: number): void;
  /** Takes the bytes of a machine's message. It is to be read after this time; until then the machine waits, and nothing is lost. */
  waitMs(machineId: string, bytes: number): number;
}

/** Neighbours in one IPv6 /64 count as one address. */
export function openReadBudget(clock: Clock): ReadBudget {
  const unproven = openBuckets({ perSecond: LINK_UNPROVEN_BYTES_PER_SECOND, burst: LINK_UNPROVEN_BYTES_BURST }, clock);
  const machines = openBuckets({ perSecond: LINK_READ_BYTES_PER_SECOND, burst: LINK_READ_BYTES_BURST }, clock);
  return {
    takeUnproven: (clientIp, bytes) => unproven.take(networkOf(clientIp), bytes).waitMs === 0,
    giveBack: (clientIp, bytes) => unproven.giveBack(networkOf(clientIp), bytes),
    waitMs: (machineId, bytes) => machines.owe(machineId, bytes),
  };
}
