// How often somebody may try to sign in. The tries are counted in rows of the database, so all control planes count together. A try counts
// before its password is checked, so that many tries at the same moment cannot pass together.
//
// Three counters slow a guesser down: one for the account and the network, one for the account, and one for the network. The owner of
// the account may have signed in from a network before. The counter of the account does not apply to that network. So strangers cannot lock
// the owner out. A passkey is never locked.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { networkOf } from '../../../shared/client-network.ts';
import { fail, ServiceError } from '../../../shared/errors.ts';
import { SIGN_UPS_PER_NETWORK_MAX } from '../../../shared/limits.ts';
import { int } from '../db/columns.ts';
import { type Db, join, type Sql, sql, type Tx } from '../db/db.ts';
import type { Piece } from '../db/pieces.ts';
import { hashOf } from '../accounts/api-keys.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
/** Failures are forgotten after this time without another one. Right sign-ins in between do not keep them. */
export const ATTEMPTS_KEEP_MS = 60 * MINUTE_MS;

/** The wait before the next try, by the number of failures. The last line that fits counts. */
type Waits = readonly { failures: number; waitMs: number }[];

const WAITS = {
  pair: [
    { failures: 5, waitMs: 30 * SECOND_MS },
    { failures: 8, waitMs: 5 * MINUTE_MS },
    { failures: 12, waitMs: 15 * MINUTE_MS },
  ],
  account: [{ failures: 50, waitMs: 15 * MINUTE_MS }],
  network: [{ failures: 100, waitMs: 15 * MINUTE_MS }],
  openid: [{ failures: 30, waitMs: 15 * MINUTE_MS }],
  signUps: [{ failures: SIGN_UPS_PER_NETWORK_MAX, waitMs: 60 * MINUTE_MS }],
} as const satisfies Record<string, Waits>;

export interface Attempts {
  /** Counts a sign-up whose address is free, because it costs a hash and leaves rows. @throws ServiceError `rate_limit_exceeded` */
  takeSignUp(clientIp: string): Promise<void>;
  /**
   * Asks the OpenID provider with `ask` about an answer that a browser has brought. What counts are answers that are not valid (`ask` throws
   * `sign_in_failed`). Otherwise one stranger could use up the requests that the provider allows this service. @throws ServiceError
   * `rate_limit_exceeded`, and what `ask` throws
   */
  asking<T>(clientIp: string, ask: () => Promise<T>): Promise<T>;
  /**
   * Counts a try to sign in to the account. @throws ServiceError `rate_limit_exceeded` with the time to wait
   */
  take(attempt: Attempt): Promise<void>;
  /**
   * Called when the try has failed. A failure keeps the older failures of the network for another hour. A try that only counts does not keep them:
   * it may still succeed, and in a large network somebody always signs in.
   */
  noteFailure(attempt: Attempt): Promise<void>;
  /** Called when nothing about the try was wrong, but a code was missing. The try does not count then. */
  takeBack(attempt: Attempt): Promise<void>;
  /** Checks what was given in a try that counts. If it cannot be checked now, the try does not count. @throws what `check` throws */
  checked<T>(attempt: Attempt, check: () => Promise<T>): Promise<T>;
  /** Called when the try has succeeded. It clears the failures of the account, and takes this one try back from the network's count. */
  forgive(tx: Tx, attempt: Attempt): Promise<void>;
}

const TOO_MANY_FAILURES =
  'There were too many failed tries. Wait for the seconds that Retry-After says, or use a passkey.';
const TOO_MANY_ANSWERS =
  'Too many answers of the OpenID provider from your network were not valid. Wait for the seconds that Retry-After says, or sign in another way.';
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

export function openAttempts(deps: { db: Db; clock: Clock }): Attempts {
  const { takeOne, takeBackOf, keep } = openCounters(deps);
  const takeBack: Attempts['takeBack'] = async (attempt) => {
    const { pair, account, network } = subjectsOf(attempt);
    await takeBackOf(attempt.isKnown ? [pair, network] : [pair, network, account]);
  };
  return {
    takeSignUp: async (clientIp) => {
      const subject = hashOf(JSON.stringify(['sign-ups', networkOf(clientIp)]));
      await takeOne(subject, { waits: WAITS.signUps, why: TOO_MANY_SIGN_UPS });
    },
    asking: async (clientIp, ask) => {
      const subject = hashOf(JSON.stringify(['openid', networkOf(clientIp)]));
      await takeOne(subject, { waits: WAITS.openid, why: TOO_MANY_ANSWERS, keepsTime: true });
      let isValid = true;
      try {
        return await ask();
      } catch (error) {
        isValid = !(error instanceof ServiceError) || error.code !== 'sign_in_failed';
        throw error;
      } finally {
        await (isValid ? takeBackOf([subject]) : keep(subject));
      }
    },
    take: async (attempt) => {
      const { pair, account, network } = subjectsOf(attempt);
      // The network is counted first. Otherwise a network that must wait could leave a row for each address that it makes up.
      await takeOne(network, { waits: WAITS.network, keepsTime: true });
      const taken = [network];
      try {
        await takeOne(pair, { waits: WAITS.pair });
        taken.push(pair);
        if (!attempt.isKnown) await takeOne(account, { waits: WAITS.account });
      } catch (error) {
        // Nothing was tried. An owner who keeps trying while it must wait does not lock its whole network, and does not have to wait longer.
        await takeBackOf(taken);
        throw error;
      }
    },
    noteFailure: (attempt) => keep(subjectsOf(attempt).network),
    takeBack,
    checked: async (attempt, check) => {
      try {
        return await check();
      } catch (error) {
        await takeBack(attempt);
        throw error;
      }
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

interface Counters {
  /** Counts a try. With `keepsTime`, it keeps no older failures (`keep`). @throws ServiceError `rate_limit_exceeded` */
  takeOne(subject: string, how: { waits: Waits; why?: string; keepsTime?: boolean }): Promise<void>;
  /** Takes a try back that was counted for each of these subjects. */
  takeBackOf(subjects: readonly string[]): Promise<void>;
  /** Keeps the failures for another hour. */
  keep(subject: string): Promise<void>;
}

function openCounters({ db, clock }: { db: Db; clock: Clock }): Counters {
  return {
    takeOne: async (subject, { waits, why = TOO_MANY_FAILURES, keepsTime = false }) => {
      const nowMs = clock.now();
      const taken = await db.tx('users.note_attempt', (tx) => tx.run(counted(subject, { waits, keepsTime, nowMs })));
      if (taken === 1) return;
      const row = await db.read.one(NextRow, sql`select next_ms from sign_in_failures where subject = ${subject}`);
      fail('rate_limit_exceeded', {
        detail: why,
        retryAfterSeconds: Math.max(1, ((row?.next_ms ?? nowMs) - nowMs) / SECOND_MS),
      });
    },
    takeBackOf: async (subjects) => {
      await db.tx('users.take_back_attempt', (tx) => tx.run(withoutOne(subjects)));
    },
    keep: async (subject) => {
      await db.tx('users.note_failure', (tx) =>
        tx.run(sql`update sign_in_failures set updated_ms = ${clock.now()} where subject = ${subject}`),
      );
    },
  };
}

/** The statement that counts a try. It changes no row while the subject must wait. With `keepsTime`, only a failure moves the time. */
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
