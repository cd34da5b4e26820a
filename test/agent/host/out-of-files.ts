// A process that has no file descriptor left and runs a program: prints how that ends. The last one is freed to print it.
import { openSync, closeSync } from 'node:fs';
import { run } from '../../../agent/host/run.ts';
import { messageOf } from '../../../shared/errors.ts';

const held: number[] = [];
try {
  for (;;) held.push(openSync('/dev/null', 'r'));
} catch {
  const outcome = await run(['true'], { timeoutMs: 5_000 }).then(({ code }) => `code ${code}`, messageOf);
  closeSync(held[0] ?? 0);
  process.stdout.write(outcome);
}
