// What operators see of notices at a glance: mails that the mail server does not take.
import { z } from 'zod';
import { int } from '../../base/db/columns.ts';
import { sql } from '../../base/db/db.ts';
import type { Waits } from '../../base/http/overview.ts';

/**
 * A mail server that restarts refuses fewer attempts than these, which take six minutes. The text must equal the condition of the index
 * `notice_mails_refused`.
 */
const IS_REFUSED = sql`m.attempts >= 3`;
/** More mails than this are not counted. */
const COUNTED_MAX = 1_000;

const RefusedRow = z.object({ count: int, first_ms: int.nullable() });

export const waitingMails: Waits = async (query) => {
  const refused = await query.one(
    RefusedRow,
    sql`select count(*) as count, min(created_ms) as first_ms from (
          select l.created_ms from notice_mails m join notice_letters l on l.id = m.letter_id
          where ${IS_REFUSED} limit ${COUNTED_MAX}) as waiting`,
  );
  if (refused === undefined || refused.first_ms === null) return [];
  const { count, first_ms: sinceMs } = refused;
  const mails = `${count === COUNTED_MAX ? 'At least ' : ''}${count} ${count === 1 ? 'notice' : 'notices'}`;
  return [
    {
      kind: 'mail',
      id: 'refused',
      what: `${mails} could not be mailed. The log says why the mail server does not take them.`,
      sinceMs,
      command: `journalctl -u svc-control-plane --grep 'a mail was not sent'`,
    },
  ];
};
