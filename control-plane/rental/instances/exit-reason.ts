// What a customer is told about a rental that runs on although its main process is over.
import type { ObservedWorkload } from '../../../shared/protocol/workload.ts';

/** The container stays up and reachable after its main process (DESIGN section 6). Null while there is nothing to tell. */
export function exitReason(observed: ObservedWorkload | null): string | null {
  const exit = observed?.main_exit ?? null;
  if (exit === null) return null;
  return exit.signal === null
    ? `main process exited with code ${exit.code}`
    : `main process was ended by signal ${exit.signal}`;
}
