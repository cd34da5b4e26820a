// Keeps the clone token, which exposes copies of this host. The control plane sends a new value every minute, and the host shows the
// newest at its next link. A copy of the disk that is started elsewhere shows an old one.
import { join } from 'node:path';
import { z } from 'zod';
import type { Log } from '../../shared/log.ts';
import type { StateFiles } from '../host/state.ts';

export interface CloneToken {
  /** The newest stored value; null before the first. */
  shown(): Promise<string | null>;
  /** Resolves with true once the value is on disk. If the write fails, resolves with false, and the value before is shown again. */
  keep(value: string): Promise<boolean>;
}

const Kept = z.strictObject({ value: z.string() });

export async function openCloneToken(
  stateDir: string,
  { files, log }: { files: StateFiles; log: Log },
): Promise<CloneToken> {
  const file = join(stateDir, 'clone-token.json');
  let kept = await files.read(file, Kept).catch((error: unknown) => {
    log.error({ err: error }, 'the stored clone token is damaged: this host may be mistaken for a copy of itself');
    return undefined;
  });
  let storing: Promise<unknown> = Promise.resolve();
  const store = async (value: string): Promise<boolean> => {
    try {
      await files.write(file, { value });
      kept = { value };
      return true;
    } catch (error) {
      log.error({ err: error }, 'the clone token could not be stored; the one before is shown again');
      return false;
    }
  };
  return {
    shown: async () => {
      await storing;
      return kept?.value ?? null;
    },
    keep: (value) => {
      const stored = storing.then(() => store(value));
      storing = stored;
      return stored;
    },
  };
}
