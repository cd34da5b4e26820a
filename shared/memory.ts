// How V8 decides that it is time to collect garbage: for a process that carries bytes beside a large heap.
import { setFlagsFromString } from 'node:v8';

/**
 * Call first. By default V8 marks the whole heap for every 64 MB of buffers, however short they live: ten times a second while a
 * stream is copied, and with the heap of a control plane that costs more than the copying. With this, buffers count like the rest
 * of the heap, whose limit grows with it. Dead buffers stay a little longer: not for a process with a small heap and a memory cap,
 * such as a holder. A V8 that does not know the flag says so and goes on as it is.
 */
export function countBuffersWithHeap(): void {
  setFlagsFromString('--external-memory-accounted-in-global-limit');
}
