// The SQL of notices, of the letters that are made of them, and of the mails that bring a letter to each person.
import { z } from 'zod';
import { int, json, text } from '../../base/db/columns.ts';
import { join, type Query, type Sql, sql, type Tx } from '../../base/db/db.ts';
import type { Piece } from '../../base/db/pieces.ts';
import { Topic } from './topics.ts';

const NoticeRow = z.object({
  id: text,
  org_id: text,
  topic: Topic,
  type: text,
  subject_id: text,
  data: json(z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]))),
  created_ms: int,
  due_ms: int,
});
export type NoticeRow = z.infer<typeof NoticeRow>;
const NOTICE = sql`id, org_id, topic, type, subject_id, data, created_ms, due_ms`;

export async function insertNotice(tx: Tx, row: NoticeRow): Promise<void> {
  await tx.run(
    sql`insert into notices (${NOTICE}) values (${row.id}, ${row.org_id}, ${row.topic}, ${row.type}, ${row.subject_id},
          ${JSON.stringify(row.data)}, ${row.created_ms}, ${row.due_ms})`,
  );
}

const DueRow = NoticeRow.pick({ org_id: true, topic: true });
export type DueTopic = z.infer<typeof DueRow>;

/** Organisations and topics with a notice that is due, the longest due first. */
export function dueTopics(query: Query, nowMs: number, limit: number): Promise<DueTopic[]> {
  return query.all(
    DueRow,
    sql`select org_id, topic from notices where due_ms <= ${nowMs}
        group by org_id, topic order by min(due_ms), org_id, topic limit ${limit}`,
  );
}

/** Nothing of the topic is due before `dueMs`. */
export async function postpone(tx: Tx, { org_id: orgId, topic }: DueTopic, dueMs: number): Promise<void> {
  await tx.run(
    sql`update notices set due_ms = ${dueMs} where org_id = ${orgId} and topic = ${topic} and due_ms < ${dueMs}`,
  );
}

/** Deletes all notices of the topic, also those that are not due yet, and returns them. */
export function takeNotices(tx: Tx, { org_id: orgId, topic }: DueTopic): Promise<NoticeRow[]> {
  return tx.all(NoticeRow, sql`delete from notices where org_id = ${orgId} and topic = ${topic} returning ${NOTICE}`);
}

const LetterRow = z.object({
  id: text,
  org_id: text,
  topic: Topic,
  subject: text,
  body: text,
  first_ms: int,
  created_ms: int,
});
type LetterRow = z.infer<typeof LetterRow>;

const SentRow = LetterRow.pick({ topic: true, created_ms: true });
export type SentLetter = z.infer<typeof SentRow>;

/** The letters to members of the organisation that were made after `sinceMs` and until `untilMs`, newest first. */
export function lettersOf(
  query: Query,
  orgId: string,
  { sinceMs, untilMs }: { sinceMs: number; untilMs: number },
): Promise<SentLetter[]> {
  return query.all(
    SentRow,
    sql`select topic, created_ms from notice_letters
        where org_id = ${orgId} and created_ms > ${sinceMs} and created_ms <= ${untilMs} order by created_ms desc, id desc`,
  );
}

/** Stores the letter, with a mail to each of these people. */
export async function insertLetter(tx: Tx, row: LetterRow, userIds: readonly string[]): Promise<void> {
  await tx.run(
    sql`insert into notice_letters (id, org_id, topic, subject, body, first_ms, created_ms)
        values (${row.id}, ${row.org_id}, ${row.topic}, ${row.subject}, ${row.body}, ${row.first_ms}, ${row.created_ms})`,
  );
  const mails = userIds.map((userId) => sql`(${row.id}, ${userId}, 0, ${row.created_ms})`);
  await tx.run(sql`insert into notice_mails (letter_id, user_id, attempts, due_ms) values ${join(mails)}`);
}

const MailRow = LetterRow.omit({ id: true, created_ms: true }).extend({
  letter_id: text,
  user_id: text,
  attempts: int,
});
export type MailRow = z.infer<typeof MailRow>;

/** Mails that are due, the longest due first. */
export function dueMails(query: Query, nowMs: number, limit: number): Promise<MailRow[]> {
  return query.all(
    MailRow,
    sql`select m.letter_id, m.user_id, m.attempts, l.org_id, l.topic, l.subject, l.body, l.first_ms
        from notice_mails m join notice_letters l on l.id = m.letter_id
        where m.due_ms <= ${nowMs} order by m.due_ms, m.letter_id, m.user_id limit ${limit}`,
  );
}

type MailKey = Pick<MailRow, 'letter_id' | 'user_id'>;

/** The mail was sent, is given up, or nobody wants it any more. */
export async function deleteMail(tx: Tx, { letter_id: letterId, user_id: userId }: MailKey): Promise<void> {
  await tx.run(sql`delete from notice_mails where letter_id = ${letterId} and user_id = ${userId}`);
}

/** Counts an attempt to send the mail. After a failure, the mail is due again at `dueMs`. False if another process has begun this attempt. */
export async function beginAttempt(
  tx: Tx,
  { letter_id: letterId, user_id: userId, attempts }: MailKey & Pick<MailRow, 'attempts'>,
  dueMs: number,
): Promise<boolean> {
  const begun = await tx.run(
    sql`update notice_mails set attempts = ${attempts + 1}, due_ms = ${dueMs}
        where letter_id = ${letterId} and user_id = ${userId} and attempts = ${attempts}`,
  );
  return begun === 1;
}

const TroubleRow = z.object({
  machine_id: text,
  trouble: z.enum(['offline', 'off_offer', 'gpu_broken']),
  /** The broken GPU; empty if the trouble is the machine's as a whole. */
  gpu_uuid: text,
  org_id: text,
  since_ms: int,
  /** When the supplier was told; null if it was not. */
  told_ms: int.nullable(),
});
export type TroubleRow = z.infer<typeof TroubleRow>;
export type TroubleKey = Pick<TroubleRow, 'machine_id' | 'trouble' | 'gpu_uuid'>;
const TROUBLE = sql`machine_id, trouble, gpu_uuid, org_id, since_ms, told_ms`;

/** False if the trouble is known. */
export async function insertTrouble(tx: Tx, row: TroubleRow): Promise<boolean> {
  const inserted = await tx.run(
    sql`insert into notice_troubles (${TROUBLE}) values (${row.machine_id}, ${row.trouble}, ${row.gpu_uuid}, ${row.org_id}, ${row.since_ms},
          ${row.told_ms}) on conflict (machine_id, trouble, gpu_uuid) do nothing`,
  );
  return inserted === 1;
}

/** A page of all troubles, in the order of their keys. */
export function troublesAfter(query: Query, after: TroubleKey, limit: number): Promise<TroubleRow[]> {
  return query.all(
    TroubleRow,
    sql`select ${TROUBLE} from notice_troubles
        where (machine_id, trouble, gpu_uuid) > (${after.machine_id}, ${after.trouble}, ${after.gpu_uuid})
        order by machine_id, trouble, gpu_uuid limit ${limit}`,
  );
}

/** The troubles of these machines. */
export async function troublesOf(query: Query, machineIds: readonly string[]): Promise<TroubleRow[]> {
  if (machineIds.length === 0) return [];
  return query.all(
    TroubleRow,
    sql`select ${TROUBLE} from notice_troubles where machine_id in (${join([...machineIds])})`,
  );
}

/** Notes that the supplier is told. False if it was told, or if the trouble is over. */
export async function setTold(tx: Tx, key: TroubleKey, nowMs: number): Promise<boolean> {
  return (
    (await tx.run(sql`update notice_troubles set told_ms = ${nowMs} where ${isTrouble(key)} and told_ms is null`)) === 1
  );
}

/** False if the row is gone already. */
export async function deleteTrouble(tx: Tx, key: TroubleKey): Promise<boolean> {
  return (await tx.run(sql`delete from notice_troubles where ${isTrouble(key)}`)) === 1;
}

function isTrouble({ machine_id: machineId, trouble, gpu_uuid: gpuUuid }: TroubleKey): Sql {
  return sql`machine_id = ${machineId} and trouble = ${trouble} and gpu_uuid = ${gpuUuid}`;
}

/** Deletes old notices that nobody has made a letter of, as after the operator has removed the mail server. Returns their number. */
export function forgetNotices(tx: Tx, { untilMs, limit }: Piece): Promise<number> {
  return tx.run(
    sql`delete from notices where id in (
          select id from notices where created_ms <= ${untilMs} order by created_ms limit ${limit})`,
  );
}

/** Deletes mails that should have left long ago. Returns their number. */
export function forgetMails(tx: Tx, { untilMs, limit }: Piece): Promise<number> {
  return tx.run(
    sql`delete from notice_mails where (letter_id, user_id) in (
          select letter_id, user_id from notice_mails where due_ms <= ${untilMs} order by due_ms limit ${limit})`,
  );
}

/** Deletes old letters without a mail on its way. Returns their number. */
export function forgetLetters(tx: Tx, { untilMs, limit }: Piece): Promise<number> {
  return tx.run(
    sql`delete from notice_letters where id in (
          select l.id from notice_letters l where l.created_ms <= ${untilMs}
            and not exists (select 1 from notice_mails m where m.letter_id = l.id)
          order by l.created_ms limit ${limit})`,
  );
}
