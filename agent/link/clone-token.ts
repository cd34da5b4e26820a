// What shows that this host is the only one with its identity: the control plane hands out a new value every minute, and asks for the newest
// at the next link. A copy of the disk that is started elsewhere has an old one.
import { join } from 'node:path';
import { z } from 'zod';
import type { Log } from '../../shared/log.ts';
import type { StateFiles } from '../host/state.ts';

export interface CloneToken {
  /** The newest value that is on disk; null before the first. */
  shown(): Promise<string | null>;
  /** True once the value is on disk; false where the disk does not take it: then the one before is shown again. */
  keep(value: string): Promise<boolean>;
}

const Kept = z.strictObject({ value: z.string() });

export async function openCloneToken(
  stateDir: string,
  { files, log }: { files: StateFiles; log: Log },
): Promise<CloneToken> {
  const file = join(stateDir, 'clone-token.json');
  let kept = await files.read(file, Kept).catch((error: unknown) => {
    log.error({ err: error }, 'the stored cloneToken is damaged: this host may be taken for a copy of itself');
    return undefined;
  });
  let storing: Promise<unknown> = Promise.resolve();
  const store = async (value: string): Promise<boolean> => {
    try {
      await files.write(file, { value });
      kept = { value };
      return true;
    } catch (error) {
      log.error({ err: error }, 'the cloneToken could not be stored; the one before is shown again');
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
