// The version log of the wire between control plane and agents. Both sides send the range of their versions; the highest common one is used.
//
// 1 (2026-11-21): enrolment; challenge and hello; complete desired state; observed state; streams on request. The desired state contains
//   the time, the end of a rental, its disk size, and whether its image is private (the host then requests a login). The inventory contains
//   whether disk sizes are enforced, whether the network fence stands, GPUs with faults, and the version of the container toolkit. Streams
//   lead to SSH, to a port inside or to the container's log. A failed workload names the cause, also if the guest never connected. A clone
//   token exposes copies of a host's disk.
// 2 (2026-11-23): jobs. A desired workload may have `job`: a program without a network that reads inputs, appends events to a file and leaves
//   results. New messages: `job_url` (both ways), `job_events`, `job_events_kept`. An observed job has `job` and the phases
//   `finishing` and `finished`. A peer of version 1 is sent no job and no report about one.
// 3 (2026-11-24): figures of GPUs, containers and the host. New messages: `metrics` from the host, `watch` to it. A peer of version 2 is
//   sent neither.

export const PROTOCOL_MIN = 1;
export const PROTOCOL_MAX = 3;
/** The first version whose agents run jobs. */
export const PROTOCOL_WITH_JOBS = 2;
/** The first version whose agents send figures. */
export const PROTOCOL_WITH_METRICS = 3;

/** The highest version that is in both ranges; undefined if there is none. In that case one side must be upgraded. */
export function negotiateVersion(peer: { min: number; max: number }): number | undefined {
  const version = Math.min(PROTOCOL_MAX, peer.max);
  return version >= Math.max(PROTOCOL_MIN, peer.min) ? version : undefined;
}
