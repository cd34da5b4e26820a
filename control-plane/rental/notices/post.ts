// Sends the mails that are due. The row of a mail is deleted after the mail has left: a crash in between repeats the mail, and loses none.
// The time of the next attempt is written before the mail leaves. Without that, a full disk would repeat the mail in each run, because its row cannot
// be deleted.
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db } from '../../base/db/db.ts';
import { openRowFailures, type RowFailures } from '../../base/db/row-failures.ts';
import type { Mail } from '../../base/mail/mail.ts';
import { rolesWith } from '../../base/users/roles.ts';
import { mailedMembers } from '../../base/users/store.ts';
import { retryAfterMs, TELL_MS_MAX } from './limits.ts';
import * as store from './store.ts';
import { SCOPE_OF } from './topics.ts';

export interface PostDeps {
  db: Db;
  clock: Clock;
  log: Log;
  mail: Mail;
}

const MAILS_PER_READ = 20;
/** Fewer than a mail server is sent at once, because invitations need a place too. */
const LANES = 2;
/** A run ends after this time and the mails in progress, far earlier than a run that counts as hanging. */
const RUN_MS_MAX = 60_000;
/** How long a process that ends waits for the mail server. A mail that has no answer by then may be sent again by the next process. */
const STOP_MS_MAX = 5_000;

/** Sends what is due. True if there may be more. @throws what has failed, at the end; DbError at once */
export async function postDue(signal: AbortSignal, deps: PostDeps): Promise<boolean> {
  const { db, clock } = deps;
  const endMs = clock.monotonicMs() + RUN_MS_MAX;
  const isOver = (): boolean => signal.aborted || clock.monotonicMs() >= endMs;
  const failures = openRowFailures();
  let isMore = true;
  while (isMore && !isOver()) {
    const due = await store.dueMails(db.read, clock.now(), MAILS_PER_READ);
    isMore = due.length === MAILS_PER_READ;
    const queue = due.values();
    await Promise.all(Array.from({ length: LANES }, () => postEach(queue, { isOver, failures, signal }, deps)));
    failures.throwAll();
  }
  return isMore;
}

/** Each lane takes the next mail of the same queue. */
async function postEach(
  queue: Iterable<store.MailRow>,
  { isOver, failures, signal }: { isOver(): boolean; failures: RowFailures; signal: AbortSignal },
  deps: PostDeps,
): Promise<void> {
  for (const row of queue) {
    if (isOver()) return;
    await failures.note(`the letter ${row.letter_id} could not be mailed to ${row.user_id}`, post(row, signal, deps));
  }
}

async function post(row: store.MailRow, signal: AbortSignal, { db, clock, log, mail }: PostDeps): Promise<void> {
  const { letter_id: letterId, user_id: userId, org_id: orgId, topic, subject, body, attempts } = row;
  if (clock.now() >= row.first_ms + TELL_MS_MAX) {
    log.warn({ letter_id: letterId, user_id: userId, org_id: orgId, topic, attempts }, 'a mail was given up');
    return db.tx('notices.give_up', (tx) => store.deleteMail(tx, row));
  }
  // Since the letter was made, the person may have left, have another role or another address, or want no mails any more.
  const [person] = await mailedMembers(db.read, orgId, { roles: rolesWith(SCOPE_OF[topic]), userId, limit: 1 });
  if (person === undefined) return db.tx('notices.leave_out', (tx) => store.deleteMail(tx, row));
  const dueMs = clock.now() + retryAfterMs(attempts + 1);
  // Another process may have begun with the mail.
  if (!(await db.tx('notices.try', (tx) => store.beginAttempt(tx, row, dueMs)))) return;
  const sending = mail.send({ to: person.email, subject, text: body, about: `${letterId} for ${userId}` });
  if (await untilStopped(sending, signal, clock)) await db.tx('notices.sent', (tx) => store.deleteMail(tx, row));
}

/** Undefined if the process ends and the mail server still has not answered. */
async function untilStopped(
  sending: Promise<boolean>,
  signal: AbortSignal,
  clock: Clock,
): Promise<boolean | undefined> {
  const { promise: stopped, resolve } = Promise.withResolvers<undefined>();
  let cancel = (): void => undefined;
  const stop = (): void => {
    cancel = clock.after(STOP_MS_MAX, () => resolve(undefined));
  };
  if (signal.aborted) stop();
  else signal.addEventListener('abort', stop, { once: true });
  try {
    return await Promise.race([sending, stopped]);
  } finally {
    signal.removeEventListener('abort', stop);
    cancel();
  }
}
