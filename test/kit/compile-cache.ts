// Node's compile cache for the many programs that tests start, kept for the next run too.
import { join } from 'node:path';

/** The folder is not among the temporary files of a run: programs that end after it write here too. */
const FOLDER = join(import.meta.dirname, '../../node_modules/.cache/compiled');

/** The setup runs before the workers start, which pass their environment on. */
export function setup(): void {
  process.env['NODE_COMPILE_CACHE'] = FOLDER;
}
