// Tunes V8's garbage collection for a process that copies streams and has a large heap.
import { setFlagsFromString } from 'node:v8';

/**
 * Must be called first. By default V8 marks the whole heap for every 64 MB of buffers, even if they are short-lived. While a stream is
 * copied, that happens ten times a second, and with the heap of a control plane it costs more than the copying. With this flag, buffers
 * count as part of the heap, whose limit grows with it. Dead buffers then stay a little longer, so a process with a small heap and a
 * memory limit (a holder) must not use it. A V8 without this flag prints a warning and goes on.
 */
export function countBuffersWithHeap(): void {
  setFlagsFromString('--external-memory-accounted-in-global-limit');
}
