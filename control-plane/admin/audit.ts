// The audit journal: who did what to which thing, with which result. An action and its entry are committed together or not at all.
import { AsyncLocalStorage } from 'node:async_hooks';
import { z } from 'zod';
import type { Clock } from '../../shared/clock.ts';
import { ServiceError } from '../../shared/errors.ts';
import type { Ids } from '../../shared/ids.ts';
import { countRow, int, json, text } from '../base/db/columns.ts';
import { type Db, join, type Query, sql, type Tx } from '../base/db/db.ts';
import { failEndedSession } from '../base/http/checks.ts';
import { pageBy, type PageStart } from '../base/http/cursors.ts';
import type { Caller } from '../base/http/route.ts';
import { isLivingPrincipal } from '../base/users/sessions.ts';

export interface Action {
  /** The system user that ran the command. This is not verified: anyone who can open the socket can claim any name. */
  actor: string;
  /** The operation id of the route. */
  operation: string;
  subjectId: string | null;
  /** Stored without values that look like secrets, and with the beginning of long lists. */
  parameters: object;
  requestId: string;
}

const EntryRow = z.object({
  id: text,
  at_ms: int,
  actor: text,
  operation: text,
  subject_id: text.nullable(),
  parameters: json(z.record(z.string(), z.unknown())),
  /** `ok`, or the code of the error. */
  outcome: text,
  request_id: text,
});
export type AuditEntry = z.infer<typeof EntryRow>;

export interface Audit {
  /** The database that the rooms must be opened with. Their first transaction in an action also writes the audit entry. */
  readonly db: Db;
  /** Runs `work`, whose result names the thing that it created, if any. Refusals and failures are recorded with their code. */
  run<T>(action: Action, work: () => Promise<T>, madeId: (result: T) => string | null): Promise<T>;
  /** Called when the whole request of an operator has come. @throws ServiceError `unauthorized` if its session has ended meanwhile */
  assertPresent(caller: Caller): Promise<void>;
  /** A page of these entries, newest first. */
  list(query: Query, which: WhichEntries, start: PageStart): Promise<AuditEntry[]>;
}

/** Only entries that agree with each member that is there. */
export interface WhichEntries {
  /** Epoch ms. */
  sinceMs?: number | undefined;
  actor?: string | undefined;
  operation?: string | undefined;
  subjectId?: string | undefined;
}

interface Pending extends Action {
  id: string;
  atMs: number;
}

export function openAudit({ db, clock, ids }: { db: Db; clock: Clock; ids: Ids }): Audit {
  // An async context instead of a parameter of every function: an action that is added later cannot forget its entry.
  const current = new AsyncLocalStorage<Pending>();

  return {
    db: {
      ...db,
      tx: (name, body) => {
        const pending = current.getStore();
        if (pending === undefined) return db.tx(name, body);
        return db.tx(name, async (tx) => {
          const value = await body(tx);
          await enter(tx, pending, 'ok');
          return value;
        });
      },
    },
    run: async (action, work, madeId) => {
      const pending = { ...action, id: ids.prefixed('aud'), atMs: clock.now() };
      try {
        const result = await current.run(pending, work);
        const subjectId = pending.subjectId ?? madeId(result);
        await db.tx('audit.ok', (tx) => conclude(tx, { ...pending, subjectId }, 'ok'));
        return result;
      } catch (error) {
        const code = error instanceof ServiceError ? error.code : 'internal_error';
        await db.tx('audit.failed', (tx) => conclude(tx, pending, code));
        throw error;
      }
    },
    assertPresent: async ({ principalId }) => {
      const isLiving = isLivingPrincipal(principalId, clock.now());
      if ((await db.read.one(countRow, sql`select 1 as count where ${isLiving}`)) === undefined) failEndedSession();
    },
    list: (query, { sinceMs = 0, actor, operation, subjectId }, start) => {
      const conditions = [
        sql`at_ms >= ${sinceMs}`,
        ...(actor === undefined ? [] : [sql`actor = ${actor}`]),
        ...(operation === undefined ? [] : [sql`operation = ${operation}`]),
        ...(subjectId === undefined ? [] : [sql`subject_id = ${subjectId}`]),
      ];
      return query.all(
        EntryRow,
        sql`select id, at_ms, actor, operation, subject_id, parameters, outcome, request_id from audit_entries
            where ${join(conditions, ' and ')} and ${pageBy(start, { time: sql`at_ms`, id: sql`id` })}`,
      );
    },
  };
}

/** Writes the entry once, however many transactions an action has. */
async function enter(tx: Tx, entry: Pending, outcome: string): Promise<void> {
  await tx.run(
    sql`insert into audit_entries (id, at_ms, actor, operation, subject_id, parameters, outcome, request_id)
        values (${entry.id}, ${entry.atMs}, ${entry.actor}, ${entry.operation}, ${entry.subjectId}, ${shown(entry.parameters)},
          ${outcome}, ${entry.requestId})
        on conflict (id) do nothing`,
  );
}

async function conclude(tx: Tx, entry: Pending, outcome: string): Promise<void> {
  await enter(tx, entry, outcome);
  await tx.run(
    sql`update audit_entries set outcome = ${outcome}, subject_id = ${entry.subjectId} where id = ${entry.id}`,
  );
}

/** Number of members of a list that an entry has. An import has ten thousand addresses, which its own table has too. */
const LISTED_MAX = 20;

function shown(parameters: object): string {
  return JSON.stringify(parameters, (name, value: unknown) => {
    if (/password|secret|token/i.test(name)) return '(hidden)';
    if (!Array.isArray(value) || value.length <= LISTED_MAX) return value;
    return [...value.slice(0, LISTED_MAX), `and ${value.length - LISTED_MAX} more`];
  });
}
