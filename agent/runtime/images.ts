// Removes images that no workload needs before the engine's disk is full, the least recently used first.
import { join } from 'node:path';
import { z } from 'zod';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import type { StateFiles } from '../host/state.ts';
import type { Engine } from './engine.ts';

/** When each image that we pulled was last used, in epoch ms. Other images on the host are never touched. */
const Used = z.record(z.string(), z.number());

export interface Images {
  /** Records that a workload needs the image now. Resolves when that is stored: an unrecorded image would never be removed. */
  use(image: string): Promise<void>;
  /** Removes images that are not `wanted` while the disk is fuller than it should be. */
  sweep(wanted: ReadonlySet<string>): Promise<void>;
  /** Removes images that are not `wanted` until the bytes fit beside the reserve; false if they do not fit. */
  makeRoom(bytes: number, wanted: ReadonlySet<string>): Promise<boolean>;
}

/** Fractions of the engine's disk: above `high`, images are removed until `low`. */
export interface DiskBounds {
  high: number;
  low: number;
}

interface ImagesDeps {
  engine: Pick<Engine, 'disk' | 'removeImage'>;
  files: StateFiles;
  stateDir: string;
  log: Log;
  now: () => number;
  bounds: DiskBounds;
}

/** Space that no pull may take: the state of the agent, the logs and the containers need it. */
const RESERVE_BYTES = 1024 ** 3;

export async function openImages({ engine, files, stateDir, log, now, bounds }: ImagesDeps): Promise<Images> {
  const file = join(stateDir, 'images.json');
  const used = await files.read(file, Used).catch((error: unknown) => {
    log.error(
      { err: error },
      'the record of used images is damaged: images that were pulled before stay on the disk until their next use',
    );
    return undefined;
  });
  const usedMs = new Map(Object.entries(used ?? {}));
  const store = (): Promise<void> => files.write(file, Object.fromEntries(usedMs));
  /** Runs one after another: two at once would count the same bytes as free. */
  let turn: Promise<unknown> = Promise.resolve();
  const inTurn = <T>(act: () => Promise<T>): Promise<T> => {
    const done = turn.then(act);
    turn = done.catch(() => undefined);
    return done;
  };
  /** Removes images until `isEnough`, or until none is left that may be removed. Resolves with whether it is enough. */
  const removeUntil = async (isEnough: (disk: Disk) => boolean, wanted: ReadonlySet<string>): Promise<boolean> => {
    const oldest = [...usedMs].filter(([image]) => !wanted.has(image)).toSorted(([, a], [, b]) => a - b);
    for (;;) {
      const disk = await engine.disk();
      // The disk of an engine on another host is unknown.
      if (disk === undefined || isEnough(disk)) return true;
      const [image] = oldest.shift() ?? [];
      if (image === undefined) return false;
      try {
        await engine.removeImage(image);
      } catch (error) {
        log.debug({ image, detail: messageOf(error) }, 'an image is still in use');
        continue;
      }
      usedMs.delete(image);
      log.info({ image }, 'an unused image was removed, because the disk fills up');
      // On a full disk the removal of the next image may make room for the record.
      await store().catch((error: unknown) =>
        log.warn({ detail: messageOf(error) }, 'the record of used images could not be stored'),
      );
    }
  };
  const fullness = ({ free_bytes: free, total_bytes: total }: Disk): number => 1 - free / Math.max(1, total);

  return {
    use: (image) =>
      inTurn(() => {
        usedMs.set(image, now());
        return store();
      }),
    sweep: (wanted) =>
      inTurn(async () => {
        const disk = await engine.disk();
        for (const image of wanted) if (usedMs.has(image)) usedMs.set(image, now());
        if (disk === undefined || fullness(disk) <= bounds.high) return;
        if (await removeUntil((found) => fullness(found) <= bounds.low, wanted)) return;
        log.warn({ free_bytes: disk.free_bytes }, 'the disk of the engine is full, and no image can be removed');
      }),
    makeRoom: (bytes, wanted) =>
      inTurn(async () => {
        const neededBytes = bytes + RESERVE_BYTES;
        const disk = await engine.disk();
        // An image that is larger than the whole disk would cost all other images, and would still not fit.
        if (disk !== undefined && disk.total_bytes < neededBytes) return false;
        return removeUntil((found) => found.free_bytes >= neededBytes, wanted);
      }),
  };
}

type Disk = NonNullable<Awaited<ReturnType<Engine['disk']>>>;
