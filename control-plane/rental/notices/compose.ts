// Makes one letter of all notices of an organisation about one topic, with a mail to each member who can act on it.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import { assertOrg } from '../../base/accounts/orgs.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import { openRowFailures } from '../../base/db/row-failures.ts';
import { rolesWith } from '../../base/users/roles.ts';
import { mailedMembers } from '../../base/users/store.ts';
import { standingOf } from '../../fleet/supply/troubles.ts';
import type { Ledger } from '../../money/ledger/ledger.ts';
import { balanceBelowHours, runwayOf } from '../../money/metering/runway.ts';
import { instancesByIds } from '../instances/store.ts';
import { type Around, balanceLetter, type Letter, PLAIN_LETTERS, type Told } from './letters.ts';
import { LETTERS_WINDOW_MS, mayWriteFromMs, PEOPLE_MAX, TELL_MS_MAX } from './limits.ts';
import * as store from './store.ts';
import { SCOPE_OF } from './topics.ts';

export interface ComposeDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  ledger: Pick<Ledger, 'balance'>;
  /** The origin of the console. */
  origin: string;
}

const TOPICS_PER_RUN = 100;
const IDS_PER_QUERY = 500;

/** Makes the letters that are due. True if there may be more. @throws what has failed, at the end; DbError at once */
export async function composeDue(signal: AbortSignal, deps: ComposeDeps): Promise<boolean> {
  const due = await store.dueTopics(deps.db.read, deps.clock.now(), TOPICS_PER_RUN);
  const failures = openRowFailures();
  for (const each of due) {
    if (signal.aborted) return false;
    const composed = deps.db.tx('notices.compose', (tx) => compose(tx, each, deps));
    await failures.note(`no letter about ${each.topic} could be made for the organisation ${each.org_id}`, composed);
  }
  failures.throwAll();
  return due.length === TOPICS_PER_RUN;
}

async function compose(tx: Tx, due: store.DueTopic, { clock, ids, log, ...deps }: ComposeDeps): Promise<void> {
  const { org_id: orgId, topic } = due;
  await tx.lock('org', orgId);
  const nowMs = clock.now();
  const recent = await store.lettersOf(tx, orgId, { sinceMs: nowMs - LETTERS_WINDOW_MS, untilMs: nowMs });
  const fromMs = mayWriteFromMs(topic, recent);
  if (fromMs > nowMs) return store.postpone(tx, due, fromMs);
  const all = (await store.takeNotices(tx, due)).toSorted(inOrder);
  const fresh = all.filter((row) => row.created_ms > nowMs - TELL_MS_MAX);
  if (fresh.length < all.length)
    log.warn({ org_id: orgId, topic, notices: all.length - fresh.length }, 'notices were too old to be mailed');
  const people = await mailedMembers(tx, orgId, { roles: rolesWith(SCOPE_OF[topic]), limit: PEOPLE_MAX });
  if (people.length === 0) return;
  const letter = await letterOf(tx, { ...due, rows: fresh, nowMs }, deps);
  if (letter === undefined) return;
  const row = { ...due, id: ids.uuid(), ...letter, first_ms: fresh[0]?.created_ms ?? nowMs, created_ms: nowMs };
  const userIds = people.map(({ user_id: userId }) => userId);
  await store.insertLetter(tx, row, userIds);
}

function inOrder(a: store.NoticeRow, b: store.NoticeRow): number {
  return a.created_ms - b.created_ms || (a.id < b.id ? -1 : 1);
}

/** Undefined if there is nothing to tell any more. */
async function letterOf(
  query: Query,
  { org_id: orgId, topic, rows, nowMs }: store.DueTopic & { rows: readonly store.NoticeRow[]; nowMs: number },
  { ledger, origin }: Pick<ComposeDeps, 'ledger' | 'origin'>,
): Promise<Letter | undefined> {
  const told = await toldOf(query, orgId, rows);
  if (told.length === 0) return undefined;
  const around: Around = { orgName: (await assertOrg(query, orgId)).name, origin, nowMs };
  if (topic !== 'balance') return PLAIN_LETTERS[topic](told, around);
  // Money may have come since, or time has passed.
  const belowHours = await balanceBelowHours(query, orgId, { ledger, nowMs });
  if (belowHours === null) return undefined;
  const { balance, rateUcentsPerHour } = await runwayOf(query, orgId, { ledger, nowMs });
  return balanceLetter(told, { belowHours, balanceUcents: balance.postedUcents, rateUcentsPerHour }, around);
}

/** Adds names. A launch that fails is left out: whoever asked for it reads that in its operation. */
async function toldOf(query: Query, orgId: string, rows: readonly store.NoticeRow[]): Promise<Told[]> {
  const subjects = new Map<string, { name: string | null; ready_ms?: number | null }>();
  const ids = [...new Set(rows.map(({ subject_id: id }) => id))];
  for (let from = 0; from < ids.length; from += IDS_PER_QUERY) {
    const some = ids.slice(from, from + IDS_PER_QUERY);
    const found = [...(await instancesByIds(query, orgId, some)), ...(await standingOf(query, some))];
    for (const subject of found) subjects.set(subject.id, subject);
  }
  return rows.flatMap(({ type, subject_id: subjectId, data, created_ms: createdMs }) => {
    const subject = subjects.get(subjectId);
    if (type === 'instance.failed' && subject?.ready_ms === null) return [];
    return [{ type, subjectId, name: subject?.name ?? null, data, createdMs }];
  });
}
