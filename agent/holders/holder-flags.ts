// What Node is told when it runs a holder.

/**
 * A holder carries bytes and keeps little: a client that makes it grow ends this one run. The small young generation is collected
 * often, while what it has read is still at hand, so the buffers of what has passed do not bring on collections of the whole heap.
 */
export const HOLDER_FLAGS = ['--max-old-space-size=192', '--max-semi-space-size=1', '--disable-sigusr1'] as const;
