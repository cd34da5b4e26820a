// Preloaded into a process whose memory is measured: at SIGUSR2 it collects its garbage, then prints a line with its memory.
import { setTimeout as sleep } from 'node:timers/promises';

/** The line that a reader of the log looks for. */
export interface MemoryLine {
  bench_memory: { rss: number; heap: number; outside: number };
}

/** V8 gives pages back a moment after it has collected. */
const SETTLE_MS = 500;

export async function memoryNow(): Promise<MemoryLine['bench_memory']> {
  for (let i = 0; i < 3; i += 1) {
    globalThis.gc?.();
    await sleep(SETTLE_MS);
  }
  const { rss, heapUsed: heap, external: outside } = process.memoryUsage();
  return { rss, heap, outside };
}

process.on('SIGUSR2', () => {
  void memoryNow().then((memory) =>
    process.stdout.write(`${JSON.stringify({ bench_memory: memory } satisfies MemoryLine)}\n`),
  );
});
