// What this room brings to the house.
import type { Clock } from '../../../shared/clock.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import type { Db } from '../../base/db/db.ts';
import { type Forgets, inPieces } from '../../base/db/pieces.ts';
import type { Files } from './files.ts';
import { fileRoutes } from './routes.ts';
import { forgetUploads } from './uploads-store.ts';

/** Parts of an upload that has ended are removed at the next tick. Several control planes may do this at once: each part is removed by one. */
const CLEAN_PERIOD_MS = 60_000;
/** Official clients repeat a request for some minutes. */
const UPLOADS_KEEP_MS = 24 * 3_600_000;

interface Deps {
  db: Db;
  clock: Clock;
  files: Files;
}

export function filesBrings({ db, clock, files }: Deps) {
  const clean: LoopOptions = { name: 'uploads', periodMs: CLEAN_PERIOD_MS, run: files.uploads.clean };
  const forgets: Forgets = {
    what: 'uploads',
    run: (signal) =>
      inPieces(
        clock.now() - UPLOADS_KEEP_MS,
        (piece) => db.tx('uploads.forget', (tx) => forgetUploads(tx, piece)),
        signal,
      ),
  };
  return { routes: fileRoutes({ files }), loops: [clean], forgets: [forgets] };
}
