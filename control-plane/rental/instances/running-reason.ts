// The `status_reason` of a running instance whose main process has ended or whose GPU is broken.
import { GRACE_MS } from '../../../shared/limits.ts';
import type { ObservedWorkload } from '../../../shared/protocol/workload.ts';

/** Null if there is nothing to report. A broken GPU comes first, because its text says that the time is not charged. */
export function runningReason(about: { gpuFault: string | null; observed: ObservedWorkload | null }): string | null {
  const { gpuFault, observed } = about;
  if (gpuFault === null) return exitReason(observed);
  return `The host has found a GPU of this instance broken (${gpuFault}). This time is not charged; the instance ends if that is not mended within ${GRACE_MS / 60_000} minutes.`;
}

/** The container stays up and reachable after its main process has ended (DESIGN section 6). */
function exitReason(observed: ObservedWorkload | null): string | null {
  const exit = observed?.main_exit ?? null;
  if (exit === null) return null;
  return exit.signal === null
    ? `main process exited with code ${exit.code}`
    : `main process was ended by signal ${exit.signal}`;
}
