// How a control plane became the primary, and whose place it has taken.
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db } from './db.ts';
import { LEASE_MS } from './lease.ts';
import type { Former } from './lease-keeping.ts';
import { nameOf } from './members.ts';

export interface Primacy {
  /** When this process took the lease, in epoch ms. */
  sinceMs: number;
  /** `start`: nobody else was seen. `given_back`: the former primary stopped in order. `ran_out`: it died, or could not renew its lease. */
  how: 'start' | 'given_back' | 'ran_out';
}

const GIVEN_BACK = 'this control plane takes the place of the former primary, which has given its lease back';
const RAN_OUT = `this control plane takes the place of the former primary, which has not renewed its lease for ${LEASE_MS / 1000} s: its log says why, or its machine`;

/** Called when this process has taken the lease of the primary. A change of the primary is a warning, because connections of customers were cut. */
export async function beginPrimacy(
  db: Pick<Db, 'read'>,
  former: Former | undefined,
  { clock, log }: { clock: Clock; log: Log },
): Promise<Primacy> {
  const sinceMs = clock.now();
  if (former === undefined) return { sinceMs, how: 'start' };
  const changedMs = sinceMs - (clock.monotonicMs() - former.sinceMs);
  const who = { former_primary: await nameOf(db, former.holder), since: new Date(changedMs).toISOString() };
  log.warn(who, former.hasGivenBack ? GIVEN_BACK : RAN_OUT);
  return { sinceMs, how: former.hasGivenBack ? 'given_back' : 'ran_out' };
}
