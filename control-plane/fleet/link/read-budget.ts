// Limits the bytes of messages that are read: per address before the proof, and per machine after it.
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
  /** Takes the bytes of a first message; false if the address has sent too many bytes without a valid proof. */
  takeUnproven(clientIp: string, bytes: number): boolean;
  /** Refunds the bytes of a first message with a valid proof. */
  giveBack(clientIp: string, bytes: number): void;
  /**
   * Takes the bytes of a message from a machine. The message is read after this delay. Until then the machine waits, and nothing is lost.
   */
  waitMs(machineId: string, bytes: number): number;
}

/** All addresses of an IPv6 /64 count as one. */
export function openReadBudget(clock: Clock): ReadBudget {
  const unproven = openBuckets({ perSecond: LINK_UNPROVEN_BYTES_PER_SECOND, burst: LINK_UNPROVEN_BYTES_BURST }, clock);
  const machines = openBuckets({ perSecond: LINK_READ_BYTES_PER_SECOND, burst: LINK_READ_BYTES_BURST }, clock);
  return {
    takeUnproven: (clientIp, bytes) => unproven.take(networkOf(clientIp), bytes).waitMs === 0,
    giveBack: (clientIp, bytes) => unproven.giveBack(networkOf(clientIp), bytes),
    waitMs: (machineId, bytes) => machines.owe(machineId, bytes),
  };
}
