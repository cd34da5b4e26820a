// Node's flags for a holder process.

/**
 * A holder passes bytes on and keeps little. If a client makes it grow, only this holder ends. The young generation is small and
 * collected often, so dead buffers are freed there and cause no collection of the whole heap.
 */
export const HOLDER_FLAGS = ['--max-old-space-size=192', '--max-semi-space-size=1', '--disable-sigusr1'] as const;
