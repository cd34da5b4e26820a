// How often somebody may try to sign in. The tries are counted in rows of the database, so all control planes count together. A try counts
// before its password is checked, so that many tries at the same moment cannot pass together.
//
// Three counters slow a guesser down: one for the account and the network, one for the account, and one for the network. The owner of
// the account may have signed in from a network before. The counter of the account does not apply to that network. So strangers cannot lock
// the owner out. A passkey is never locked.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { networkOf } from '../../../shared/client-network.ts';
import { fail } from '../../../shared/errors.ts';
import { SIGN_UPS_PER_NETWORK_MAX } from '../../../shared/limits.ts';
import { int } from '../db/columns.ts';
import { type Db, join, type Sql, sql, type Tx } from '../db/db.ts';
import type { Piece } from '../db/pieces.ts';
import { hashOf } from '../accounts/api-keys.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
/** Failures are forgotten after this time without another one. Right sign-ins in between do not keep them. */
export const ATTEMPTS_KEEP_MS = 60 * MINUTE;

/** The wait before the next try, by the number of failures. The last line that fits counts. */
type Waits = readonly { failures: number; waitMs: number }[];

const WAITS = {
  pair: [
    { failures: 5, waitMs: 30 * SECOND },
    { failures: 8, waitMs: 5 * MINUTE },
    { failures: 12, waitMs: 15 * MINUTE },
  ],
  account: [{ failures: 50, waitMs: 15 * MINUTE }],
  network: [{ failures: 100, waitMs: 15 * MINUTE }],
  signUps: [{ failures: SIGN_UPS_PER_NETWORK_MAX, waitMs: 60 * MINUTE }],
} as const satisfies Record<string, Waits>;

export interface Attempts {
  /** Counts a sign-up whose address is free: each costs a hash and leaves rows. @throws ServiceError `rate_limit_exceeded` */
  takeSignUp(clientIp: string): Promise<void>;
  /**
   * Counts a try to sign in to the account. @throws ServiceError `rate_limit_exceeded` with the time to wait
   */
  take(attempt: Attempt): Promise<void>;
  /**
   * Called when the try has failed. Only this keeps the older failures of the network for another hour: in a large network somebody always signs in
   * rightly, and a try that counts already may still be a right one.
   */
  noteFailure(attempt: Attempt): Promise<void>;
  /** Called when nothing about the try was wrong, but a code was missing. The try does not count then. */
  takeBack(attempt: Attempt): Promise<void>;
  /** Called when the try has succeeded. It clears the failures of the account, and takes this one try back from the network's count. */
  forgive(tx: Tx, attempt: Attempt): Promise<void>;
}

const TOO_MANY_FAILURES =
  'There were too many failed tries. Wait for the seconds that Retry-After says, or use a passkey.';
const TOO_MANY_SIGN_UPS =
  'Too many people have signed up from your network. Wait for the seconds that Retry-After says, or ask for an invitation.';

export interface Attempt {
  /** The e-mail address that was given. It need not belong to an account. */
  account: string;
  clientIp: string;
  /** True if the owner of the account has used this network before. */
  isKnown: boolean;
}

const NextRow = z.object({ next_ms: int });

export function openAttempts({ db, clock }: { db: Db; clock: Clock }): Attempts {
  const takeOne = async (
    subject: string,
    { waits, why = TOO_MANY_FAILURES, keepsTime = false }: { waits: Waits; why?: string; keepsTime?: boolean },
  ): Promise<void> => {
    const nowMs = clock.now();
    const taken = await db.tx('users.note_attempt', (tx) => tx.run(counted(subject, { waits, keepsTime, nowMs })));
    if (taken === 1) return;
    const row = await db.read.one(NextRow, sql`select next_ms from sign_in_failures where subject = ${subject}`);
    fail('rate_limit_exceeded', {
      detail: why,
      retryAfterSeconds: Math.max(1, ((row?.next_ms ?? nowMs) - nowMs) / SECOND),
    });
  };
  return {
    takeSignUp: async (clientIp) => {
      const subject = hashOf(JSON.stringify(['sign-ups', networkOf(clientIp)]));
      await takeOne(subject, { waits: WAITS.signUps, why: TOO_MANY_SIGN_UPS });
    },
    take: async (attempt) => {
      const { pair, account, network } = subjectsOf(attempt);
      // The network first: else one that must wait could leave a row for each address that it makes up.
      await takeOne(network, { waits: WAITS.network, keepsTime: true });
      try {
        await takeOne(pair, { waits: WAITS.pair });
      } catch (error) {
        // Nothing was tried. An owner who keeps trying while it must wait does not lock its whole network.
        await db.tx('users.take_back_attempt', (tx) => tx.run(withoutOne([network])));
        throw error;
      }
      if (!attempt.isKnown) await takeOne(account, { waits: WAITS.account });
    },
    noteFailure: async (attempt) => {
      const { network } = subjectsOf(attempt);
      await db.tx('users.note_failure', (tx) =>
        tx.run(sql`update sign_in_failures set updated_ms = ${clock.now()} where subject = ${network}`),
      );
    },
    takeBack: async (attempt) => {
      const { pair, account, network } = subjectsOf(attempt);
      const counted = attempt.isKnown ? [pair, network] : [pair, network, account];
      await db.tx('users.take_back_attempt', (tx) => tx.run(withoutOne(counted)));
    },
    forgive: async (tx, attempt) => {
      const { pair, account, network } = subjectsOf(attempt);
      await tx.run(sql`delete from sign_in_failures where subject in (${join([pair, account])})`);
      // The network's failures with other accounts still count.
      await tx.run(withoutOne([network]));
    },
  };
}

export function forgetAttempts(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('users.forget_attempts', (tx) =>
    tx.run(
      sql`delete from sign_in_failures where subject in (
            select subject from sign_in_failures where updated_ms <= ${untilMs} limit ${limit})`,
    ),
  );
}

/** The statement that counts a try. It changes no row while the subject must wait. `keepsTime`: only `noteFailure` moves the time. */
function counted(
  subject: string,
  { waits, keepsTime, nowMs }: { waits: Waits; keepsTime: boolean; nowMs: number },
): Sql {
  const isOld = sql`sign_in_failures.updated_ms <= ${nowMs - ATTEMPTS_KEEP_MS}`;
  const count = sql`(case when ${isOld} then 1 else sign_in_failures.failures + 1 end)`;
  const updated = keepsTime
    ? sql`case when ${isOld} then excluded.updated_ms else sign_in_failures.updated_ms end`
    : sql`excluded.updated_ms`;
  const arms = waits
    .toReversed()
    .map(({ failures, waitMs }) => sql`when ${count} >= ${failures} then cast(${nowMs + waitMs} as bigint)`);
  return sql`insert into sign_in_failures (subject, failures, next_ms, updated_ms) values (${subject}, 1, 0, ${nowMs})
    on conflict (subject) do update set
      failures = ${count}, next_ms = case ${join(arms, ' ')} else 0 end, updated_ms = ${updated}
    where sign_in_failures.next_ms <= ${nowMs}`;
}

/** The statement that takes one try back. If the subject must wait, this try has begun the wait, because it was let through. */
function withoutOne(subjects: readonly string[]): Sql {
  return sql`update sign_in_failures set failures = failures - 1, next_ms = 0
    where subject in (${join([...subjects])}) and failures > 0`;
}

function subjectsOf({ account, clientIp }: Attempt): { pair: string; account: string; network: string } {
  const network = networkOf(clientIp);
  return {
    pair: hashOf(JSON.stringify(['pair', account, network])),
    account: hashOf(JSON.stringify(['account', account])),
    network: hashOf(JSON.stringify(['network', network])),
  };
}
