// What Node has compiled once in a run of tests it keeps for the programs that these tests start by the hundred.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Before the workers start, which pass their environment on. */
export function setup(): () => void {
  const dir = mkdtempSync(join(tmpdir(), 'compiled-'));
  process.env['NODE_COMPILE_CACHE'] = dir;
  return () => rmSync(dir, { recursive: true, force: true });
}
