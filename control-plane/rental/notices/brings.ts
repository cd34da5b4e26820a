// What this room brings to the house.
import type { Clock } from '../../../shared/clock.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { type Forgets, inPieces, type Piece } from '../../base/db/pieces.ts';
import { TELL_MS_MAX } from './limits.ts';
import type { Notices } from './notices.ts';
import { waitingMails } from './overview.ts';
import { forgetLetters, forgetMails, forgetNotices } from './store.ts';

const PERIOD_MS = 15_000;
const LOOK_PERIOD_MS = 60_000;
/** Only rows that nobody works off become so old, because the operator has removed the mail server, and letters that have left. */
const KEEP_MS = 2 * TELL_MS_MAX;

export function noticesBrings({ db, clock, notices }: { db: Db; clock: Clock; notices: Notices }) {
  const loop: LoopOptions = {
    name: 'notices',
    periodMs: PERIOD_MS,
    run: async (signal) => ((await notices.run(signal)) ? 'again' : undefined),
  };
  const look: LoopOptions = { name: 'machine-notices', periodMs: LOOK_PERIOD_MS, run: notices.lookAtMachines };
  const forgets = (what: string, forget: (tx: Tx, piece: Piece) => Promise<number>): Forgets => ({
    what,
    run: (signal) =>
      inPieces(clock.now() - KEEP_MS, (piece) => db.tx('notices.forget', (tx) => forget(tx, piece)), signal),
  });
  return {
    loops: notices.isOn ? [look, loop] : [],
    waits: [waitingMails],
    forgets: [
      forgets('notices', forgetNotices),
      forgets('notice_mails', forgetMails),
      forgets('notice_letters', forgetLetters),
    ],
  };
}
