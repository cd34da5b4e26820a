// What Node is told when it runs the control plane.

/**
 * Flags of V8, each for what it was measured to cost:
 * - Rows of busy reads came to be allocated among old objects, where they outlive their request and keep others alive: two fifths of a
 *   processor went into collecting them.
 * - The buffers of the streams that are relayed count as heap. A heap of 192 MB to begin with takes them without a collection of the whole
 *   heap every few megabytes, which took a fifth of the processor time of a busy tunnel.
 */
export const SERVE_FLAGS = ['--no-allocation-site-pretenuring', '--initial-old-space-size=192'] as const;
