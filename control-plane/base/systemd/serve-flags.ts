// The Node flags for the control plane process.

/**
 * V8 flags. Each one fixes a measured cost:
 * - Rows of frequent reads were allocated among old objects, where they outlive their request and keep others alive. Collecting them took
 * 40 % of a CPU.
 * - The buffers of relayed streams count as heap. An initial heap of 192 MB holds them without a full collection every few megabytes, which
 * took 20 % of the CPU time of a busy tunnel.
 */
export const SERVE_FLAGS = ['--no-allocation-site-pretenuring', '--initial-old-space-size=192'] as const;
