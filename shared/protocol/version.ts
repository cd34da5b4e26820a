// The version log of the wire between control plane and agents. Both sides say the range they speak; the highest common one is used.
//
// 1 (2026-11-21): enrolment, challenge and hello, whole desired state, observed state, streams on request; desired state says the
//   time, when a rental ends, how large its disk is, and whether its image is private: then its login is asked for; the inventory
//   says whether disks are held to their size and whether the network fence stands; streams lead to SSH, to a port inside or to the container's log;
//   a workload that failed names whose fault it is, also where nothing inside its container speaks; the inventory names the GPUs that are not fit to be rented and the container toolkit;
//   a clone token tells a host from copies of its disk.

export const PROTOCOL_MIN = 1;
export const PROTOCOL_MAX = 1;

/** The highest version both ranges hold, or undefined: then one side must be upgraded. */
export function negotiateVersion(peer: { min: number; max: number }): number | undefined {
  const version = Math.min(PROTOCOL_MAX, peer.max);
  return version >= Math.max(PROTOCOL_MIN, peer.min) ? version : undefined;
}
