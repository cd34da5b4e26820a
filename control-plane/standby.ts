// A control plane that stands by: another one serves on the same PostgreSQL database, and this one takes over when that one ends.
//
//   the other one stops        it gives the lease back, and this one has it within half a second
//   the other one dies         its lease is not renewed any more, and this one takes it after 15 seconds
//   this one has the lease     it changes the schema if its version is newer, and serves
//
// It listens nowhere before that, so a proxy in front finds the one that serves by asking both.
import { type Loop, startLoop } from '../shared/loop.ts';
import type { Agreement } from './agreement.ts';
import type { Db } from './base/db/db.ts';
import type { Systemd } from './base/systemd/systemd.ts';
import type { ConfigWarning } from './config-warnings.ts';
import type { SecretFile } from './secret-file.ts';
import type { Core } from './settings.ts';

export interface Standby {
  /** Another control plane, named `primary`, serves on the database. @throws Error if the secret of the database is not in our file */
  begin(db: Db, primary: string): Promise<void>;
  hasBegun(): boolean;
  end(): Promise<void>;
}

interface StandbyDeps {
  secretFile: Pick<SecretFile, 'assertKnown'>;
  agreement: Pick<Agreement, 'compareFirst'>;
  unshared: ConfigWarning | undefined;
}

/**
 * A process that stands by counts as started, so systemd expects to hear that it is alive. This tells it until `end`, because the migrations after a
 * takeover may take minutes.
 */
export function openStandby(
  { standsBy, alive, alivePeriodMs }: Systemd,
  { secretFile, agreement, unshared }: StandbyDeps,
  core: Omit<Core, 'db' | 'sealing'>,
): Standby {
  let begun = false;
  let telling: Loop | undefined;
  return {
    begin: async (db, primary) => {
      // Otherwise the takeover would find out.
      await secretFile.assertKnown(db.read);
      begun = true;
      if (unshared !== undefined) core.log.warn({ setting: unshared.setting }, unshared.what);
      await agreement.compareFirst(db.read);
      core.log.info(
        { primary },
        'another control plane serves on this database; this one stands by, and takes over when that one ends',
      );
      await standsBy();
      if (alivePeriodMs === undefined) return;
      telling = startLoop({ name: 'standby', periodMs: alivePeriodMs, run: alive }, core);
    },
    hasBegun: () => begun,
    end: async () => telling?.stop(),
  };
}
