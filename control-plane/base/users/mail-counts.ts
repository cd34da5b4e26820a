// How many mails people may cause. The mails are counted in rows of the database, so all control planes count together. Mails leave through the
// operator's mail server, and whoever makes an invitation chooses the address. So an organisation may cause some a day, and no address gets many.
import { INVITATION_MAILS_PER_ADDRESS_MAX, INVITATION_MAILS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { hashOf } from '../accounts/api-keys.ts';
import { type Db, sql, type Tx } from '../db/db.ts';
import type { Piece } from '../db/pieces.ts';
import { isCounted, type WindowCounts } from '../db/window-counts.ts';

/** The time for which mails count, from the first of them on. */
export const MAILS_COUNT_MS = 86_400_000;
const MAILS: WindowCounts = { table: 'mail_counts', id: 'subject', count: 'mails', windowMs: MAILS_COUNT_MS };

/** Counts a mail. False if it must not be sent, because the organisation or the address has had its mails of the day. */
export async function countMail(
  tx: Tx,
  { orgId, email }: { orgId: string; email: string },
  nowMs: number,
): Promise<boolean> {
  // The organisation is counted first. Otherwise it could leave a row for each address that it makes up.
  const org = orgSubject(orgId);
  if (!(await isCounted(tx, MAILS, { of: org, most: INVITATION_MAILS_PER_ORG_MAX, nowMs }))) return false;
  const address = addressSubject(email);
  if (await isCounted(tx, MAILS, { of: address, most: INVITATION_MAILS_PER_ADDRESS_MAX, nowMs })) return true;
  await takeOneBack(tx, org, nowMs);
  return false;
}

/**
 * Called when a mail that was counted at `countedMs` could not be sent. Its address has not had it. But the organisation has caused work for the
 * mail server, so the try counts there.
 */
export async function takeMailBack(tx: Tx, email: string, countedMs: number): Promise<void> {
  await takeOneBack(tx, addressSubject(email), countedMs);
}

export function forgetMailCounts(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('users.forget_mail_counts', (tx) =>
    tx.run(
      sql`delete from mail_counts where subject in (
            select subject from mail_counts where began_ms <= ${untilMs} limit ${limit})`,
    ),
  );
}

/** A day that began after the mail was counted does not have it. */
async function takeOneBack(tx: Tx, subject: string, countedMs: number): Promise<void> {
  await tx.run(
    sql`update mail_counts set mails = mails - 1 where subject = ${subject} and began_ms <= ${countedMs} and mails > 0`,
  );
}

function orgSubject(orgId: string): string {
  return hashOf(JSON.stringify(['org', orgId]));
}

function addressSubject(email: string): string {
  return hashOf(JSON.stringify(['address', email]));
}
