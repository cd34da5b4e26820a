// What the processes of a bench use. Children count for their parent.
import { readdirSync, readFileSync } from 'node:fs';

/** Resident memory in MB. */
export function residentMb(pid: number): number {
  const kib = Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  return (kib * 1024) / 1e6 + sumOf(childrenOf(pid), residentMb);
}

/** Processor time in microseconds since the start, of all threads that still live. */
export function processorUs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const ofThread = (thread: string): number =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]) / 1000;
  return sumOf(threads, ofThread) + sumOf(childrenOf(pid), processorUs);
}

function childrenOf(pid: number): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
}

function sumOf<T>(items: readonly T[], figure: (item: T) => number): number {
  return items.reduce((sum, item) => sum + figure(item), 0);
}
