// What the blob store needs of the disk beyond reading and writing files.
import { open } from 'node:fs/promises';

/** What has been put into it, or taken out, is durable once this resolves. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/** Whether the system refused with this code, e.g. `ENOENT`. */
export function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}
