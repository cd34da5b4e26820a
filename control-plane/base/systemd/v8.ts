// The V8 flags of the control plane process: those that Node needs at its start, and the one that the process sets by itself. The environment that
// its allocator reads at the start is here too.
import { setFlagsFromString } from 'node:v8';

/**
 * Passed to Node at its start. Each one fixes a measured cost:
 * - Rows of frequent reads were allocated among old objects, where they outlive their request and keep others alive. Collecting them took
 *   40 % of a CPU.
 * - The buffers of relayed streams count as heap. An initial heap of 192 MB holds them without a full collection every few megabytes, which
 *   took 20 % of the CPU time of a busy tunnel.
 * - Young objects take two halves of up to 32 MB each, of which a quarter is in use. Halves of 16 MB cost no CPU time, and the process is
 *   25 MB smaller.
 */
export const SERVE_FLAGS = [
  '--no-allocation-site-pretenuring',
  '--initial-old-space-size=192',
  '--max-semi-space-size=16',
] as const;

/**
 * Set at its start, unless the operator has set it. Each thread of V8 and of libuv would allocate from an area of its own, in which the memory of
 * finished compilations stays: 30 MB, measured. Two areas cost no CPU time.
 */
export const SERVE_ENVIRONMENT = { MALLOC_ARENA_MAX: '2' } as const;

/**
 * Tunes the garbage collection for a process that copies streams and has a large heap. Must be called first.
 *
 * By default V8 marks the whole heap for every 64 MB of buffers, even if they are short-lived. While a stream is copied, that happens ten times
 * a second, and with the heap of a control plane it costs more than the copying. With this flag, buffers count as part of the heap, whose limit
 * grows with it. Dead buffers then stay a little longer, so a process with a small heap and a memory limit (a holder) must not use it. A V8
 * without this flag prints a warning and goes on.
 */
export function countBuffersWithHeap(): void {
  setFlagsFromString('--external-memory-accounted-in-global-limit');
}
